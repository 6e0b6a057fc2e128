"""Places of jobs that need more memory than they had."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from cloud_ml.controller.placement.slots import Slots
from cloud_ml.domain.jobs.kind import TrainJobRecord
from cloud_ml.domain.quotas import Limits, QuotaSpec
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.base import Capacity
from support.jobs import NOW, job_in

GIB = 2**30
ROOM = Capacity(cpu_millis=4000, memory_bytes=8 * GIB)


@pytest.fixture
def woken() -> list[str]:
    return []


@pytest.fixture
def quotas() -> dict[str, QuotaSpec]:
    return {}


@pytest.fixture
def slots(woken: list[str], quotas: dict[str, QuotaSpec]) -> Slots:
    return Slots(9, ROOM, woken.append, lambda org: quotas.get(org, QuotaSpec()))


def growing(phase: Phase, gib: int | None = None, **status: Any) -> TrainJobRecord:
    """A job of 2 GiB at first, of ``gib`` by now."""
    fields = {"memory_limit": "2G", "restart": {"memory_factor": 2}}
    memory = {"master": gib * GIB} if gib else {}
    return job_in(phase, uid="growing", queued_at=NOW, fields=fields, memory=memory, **status)


def plain(uid: str, memory: str, phase: Phase = Phase.QUEUED) -> TrainJobRecord:
    queued_at = NOW + timedelta(seconds=1)
    return job_in(phase, uid=uid, queued_at=queued_at, fields={"memory_limit": memory})


def test_it_keeps_its_place_if_there_is_room_and_nobody_else_gets_that(slots: Slots) -> None:
    slots.sync(growing(Phase.RUNNING))
    slots.sync(plain("other", "3G", Phase.RUNNING))
    slots.sync(job := growing(Phase.RESTARTING, 4))
    slots.sync(late := plain("late", "2G"))
    assert slots.has_room(job)
    assert not slots.take(late), "7 of 8 GiB are taken by now"
    slots.sync(growing(Phase.STARTING, 4))
    assert not slots.take(late)
    slots.forget("growing")
    assert slots.take(late)


def test_it_waits_in_line_if_there_is_none(slots: Slots, woken: list[str]) -> None:
    slots.sync(growing(Phase.RUNNING))
    slots.sync(plain("other", "5G", Phase.RUNNING))
    slots.sync(job := growing(Phase.RESTARTING, 4))
    assert not slots.has_room(job)
    slots.sync(job := growing(Phase.QUEUED, 4))
    assert not slots.holds("growing")
    assert not slots.take(job)
    waits = slots.waits_for(job)
    assert waits is not None
    assert waits.reason is Reason.INSUFFICIENT_CAPACITY
    assert waits.message == "memory of this machine: 5G of 8G are used, the job asks for 4G"
    woken.clear()
    slots.forget("other")
    assert woken == ["growing"]
    assert slots.take(job)
    slots.sync(job)
    assert slots.holds("growing"), "it was queued when it got its place, and keeps it"


def test_the_quota_counts_the_larger_memory(slots: Slots, quotas: dict[str, QuotaSpec]) -> None:
    quotas["default"] = QuotaSpec(train=Limits(memory_bytes=5 * GIB))
    slots.sync(growing(Phase.STARTING, 4))
    slots.sync(late := plain("late", "2G"))
    assert not slots.take(late)
    waits = slots.waits_for(late)
    assert waits is not None
    assert "4G of 5G are used" in waits.message


def test_what_could_never_start_is_known(slots: Slots, quotas: dict[str, QuotaSpec]) -> None:
    job = growing(Phase.RUNNING)
    slots.sync(job)
    slots.sync(plain("other", "6G", Phase.RUNNING))
    assert slots.never_fits(job, {"master": 8 * GIB}) == "", "if it were alone"
    assert slots.never_fits(job, {"master": 9 * GIB}) == (
        "it would need 9G of memory, and this machine has 8G"
    )
    quotas["default"] = QuotaSpec(total=Limits(memory_bytes=3 * GIB))
    assert slots.never_fits(job, {"master": 4 * GIB}) == (
        "the quota of memory for all work together: 0B of 3G are used, the job asks for 4G"
    )


def test_two_that_need_each_others_memory_do_not_wait_for_ever(slots: Slots) -> None:
    jobs = {}
    for uid in ("one", "two"):
        fields = {"memory_limit": "4G", "restart": {"memory_factor": 1.5}}
        memory = {"master": 6 * GIB}
        slots.sync(job_in(Phase.RUNNING, uid=uid, fields=fields))
        jobs[uid] = job_in(
            Phase.RESTARTING, uid=uid, fields=fields, memory=memory, attempt=2, queued_at=NOW
        )
        slots.sync(jobs[uid])
    assert not any(map(slots.has_room, jobs.values()))
    queued = {
        uid: job_in(Phase.QUEUED, uid=uid, fields={"memory_limit": "4G"}, memory=dict(job.status.memory), queued_at=NOW)
        for uid, job in jobs.items()
    }  # fmt: skip
    slots.sync(queued["one"])
    assert not slots.holds("one")
    assert slots.has_room(jobs["two"])
    assert not slots.take(queued["one"])
