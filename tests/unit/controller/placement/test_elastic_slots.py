"""Places of elastic jobs: as many tasks as there is room for, and room that nobody else waits for."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from cloud_ml.controller.placement.slots import Slots
from cloud_ml.controller.placement.task_ports import TaskPorts
from cloud_ml.domain.jobs.kind import TrainJobRecord
from cloud_ml.domain.quotas import Limits, QuotaSpec
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.domain.workloads.worlds import World
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
    ports = TaskPorts([range(10, 30)])
    return Slots(9, ROOM, woken.append, lambda org: quotas.get(org, QuotaSpec()), ports=ports)


def elastic(phase: Phase = Phase.QUEUED, uid: str = "elastic", **status: Any) -> TrainJobRecord:
    fields = {
        "elastic": {"worker": {"min": 2, "max": 6}},
        "recipe": "pytorch",
        "memory_limit": "1G",
    }
    return job_in(phase, uid=uid, queued_at=NOW, fields=fields, **status)


def plain(uid: str, memory: str, phase: Phase = Phase.QUEUED) -> TrainJobRecord:
    queued_at = NOW + timedelta(seconds=1)
    return job_in(phase, uid=uid, queued_at=queued_at, fields={"memory_limit": memory})


def workers(world: World) -> int:
    return world.get("worker", 0)


def taken(slots: Slots, job: TrainJobRecord) -> int:
    slots.sync(job)
    assert slots.take(job)
    return workers(slots.world_for(job))


def test_it_starts_with_as_many_tasks_as_fit(slots: Slots) -> None:
    slots.sync(plain("other", "5G", Phase.RUNNING))
    assert taken(slots, job := elastic()) == 3
    slots.sync(late := plain("late", "1G"))
    assert not slots.take(late), "all of the memory is taken"
    assert len(slots.ports_for(job, slots.world_for(job))) == 3


def test_alone_it_has_all_tasks_that_the_machine_has_room_for() -> None:
    for gib, tasks in ((4, 4), (64, 6), (1, 2)):
        slots = Slots(9, Capacity(1000, gib * GIB), lambda _: None, ports=TaskPorts([range(9)]))
        assert taken(slots, elastic()) == tasks


def test_it_waits_until_its_least_fits(slots: Slots, woken: list[str]) -> None:
    slots.sync(plain("other", "7G", Phase.RUNNING))
    slots.sync(job := elastic())
    assert not slots.take(job)
    waits_for = slots.waits_for(job)
    assert waits_for is not None
    assert waits_for.message.endswith("7G of 8G are used, the job asks for 2G")
    slots.sync(plain("other", "7G", Phase.SUCCEEDED))
    assert woken[-1] == "elastic"
    assert slots.take(job)
    assert workers(slots.world_for(job)) == 6


def test_quota_and_ports_bound_it_too(slots: Slots, quotas: dict[str, QuotaSpec]) -> None:
    quotas["default"] = QuotaSpec(train=Limits(memory_bytes=4 * GIB))
    assert taken(slots, elastic()) == 4
    few = Slots(9, ROOM, lambda _: None, ports=TaskPorts([range(5)]))
    assert taken(few, elastic()) == 5


def test_its_least_decides_whether_a_lowered_quota_can_hold_it(
    slots: Slots, quotas: dict[str, QuotaSpec]
) -> None:
    slots.sync(job := elastic())
    slots.sync(late := plain("late", "1G"))
    quotas["default"] = QuotaSpec(train=Limits(memory_bytes=1 * GIB))
    assert not slots.take(job)
    waits_for = slots.waits_for(job)
    assert waits_for is not None
    assert waits_for.message.endswith("train jobs is 1G, and the job asks for 2G")
    assert slots.take(late)
    slots.forget("late")
    quotas["default"] = QuotaSpec(train=Limits(memory_bytes=2 * GIB))
    assert taken(slots, job) == 2


def test_it_becomes_larger_although_one_waits_that_can_never_start(
    slots: Slots, quotas: dict[str, QuotaSpec]
) -> None:
    quotas["default"] = QuotaSpec(train=Limits(memory_bytes=5 * GIB))
    slots.sync(job := elastic(Phase.RUNNING, world={"worker": 3}))
    slots.sync(plain("too-large", "6G"))
    assert workers(slots.larger_world(job)) == 5


def test_it_becomes_larger_when_somebody_leaves(slots: Slots, woken: list[str]) -> None:
    slots.sync(plain("other", "5G", Phase.RUNNING))
    job = elastic(Phase.RUNNING, world={"worker": 3})
    slots.sync(job)
    assert not slots.larger_world(job)
    slots.sync(plain("other", "5G", Phase.SUCCEEDED))
    assert woken == ["elastic"]
    assert workers(slots.larger_world(job)) == 6
    largest = elastic(Phase.RUNNING, world={"worker": 6})
    slots.sync(largest)
    assert not slots.larger_world(largest)


def test_it_leaves_room_that_another_job_waits_for(slots: Slots, woken: list[str]) -> None:
    slots.sync(plain("other", "3G", Phase.RUNNING))
    slots.sync(job := elastic(Phase.RUNNING, world={"worker": 3}))
    assert workers(slots.larger_world(job)) == 5
    slots.sync(large := plain("large", "4G"))
    assert not slots.take(large)
    assert not slots.larger_world(job), "it would keep the other one out"
    slots.sync(plain("other", "3G", Phase.SUCCEEDED))
    assert woken[-1] == "large"
    assert slots.take(large)
    assert woken[-1] == "elastic"
    assert workers(slots.larger_world(job)) == 4


def test_what_it_is_about_to_have_is_its_own(slots: Slots) -> None:
    slots.sync(elastic(Phase.STOPPING, world={"worker": 2}, next_world={"worker": 6}))
    slots.sync(other := plain("other", "3G"))
    assert not slots.take(other)
    again = elastic(Phase.RESTARTING, attempt=2, world={"worker": 2}, next_world={"worker": 6})
    slots.sync(again)
    assert workers(slots.world_for(again)) == 6


def test_the_next_attempt_has_what_fits_then(slots: Slots, quotas: dict[str, QuotaSpec]) -> None:
    job = elastic(Phase.RESTARTING, attempt=2, world={"worker": 4})
    slots.sync(job)
    assert workers(slots.world_for(job)) == 6
    quotas["default"] = QuotaSpec(train=Limits(memory_bytes=3 * GIB, count=0))
    assert workers(slots.world_for(job)) == 3
    quotas["default"] = QuotaSpec(train=Limits(memory_bytes=GIB))
    assert workers(slots.world_for(job)) == 2, "it has its place"


def test_the_next_attempt_takes_no_room_that_others_wait_for(slots: Slots) -> None:
    slots.sync(plain("other", "3G", Phase.RUNNING))
    job = elastic(Phase.RESTARTING, attempt=2, world={"worker": 3})
    slots.sync(job)
    slots.sync(plain("large", "4G"))
    assert workers(slots.world_for(job)) == 3


def test_one_that_is_resumed_while_it_is_being_paused_has_what_fits(slots: Slots) -> None:
    """It had all of its tasks, whatever there was room for."""
    slots.sync(plain("other", "5G", Phase.RUNNING))
    assert taken(slots, elastic()) == 3
    for phase in (Phase.STARTING, Phase.RUNNING, Phase.STOPPING):
        slots.sync(elastic(phase, world={"worker": 3}))
    again = elastic(attempt=2, world={"worker": 3})
    assert taken(slots, again) == 3
    assert len(slots.ports_for(again, slots.world_for(again))) == 3
    slots.sync(late := plain("late", "1G"))
    slots.sync(plain("other", "5G", Phase.SUCCEEDED))
    assert taken(slots, again) == 3, "another one waits for the room"
    assert slots.take(late)
    assert taken(slots, again) == 6


def test_a_smaller_attempt_gives_room_to_others(slots: Slots, woken: list[str]) -> None:
    slots.sync(elastic(Phase.RUNNING, world={"worker": 6}))
    slots.sync(other := plain("other", "4G"))
    assert not slots.take(other)
    slots.sync(elastic(Phase.STARTING, attempt=2, world={"worker": 4}))
    assert woken[-1] == "other"
    assert slots.take(other)


def test_ports_are_as_many_as_the_world_has_tasks(slots: Slots) -> None:
    job = elastic(Phase.RESTARTING, attempt=2, world={"worker": 2}, ports=(10, 11))
    slots.sync(job)
    assert slots.ports_for(job, {"worker": 3}) == (12, 13, 14)
    assert slots.ports_for(job, {"worker": 4}) == (15, 16, 17, 18)
    assert slots.ports_for(job, {"worker": 4}) == (15, 16, 17, 18)
    slots.sync(other := elastic(uid="other"))
    assert slots.take(other)
    assert slots.ports_for(other, {"worker": 3}) == (19, 20, 21)


def test_a_new_term_knows_what_it_holds(woken: list[str]) -> None:
    slots = Slots(9, ROOM, woken.append, opened=False, ports=TaskPorts([range(9)]))
    job = elastic(Phase.RUNNING, world={"worker": 3})
    slots.sync(job)
    assert not slots.larger_world(job), "nobody knows yet who waits"
    slots.open()
    assert woken == ["elastic"]
    assert workers(slots.larger_world(job)) == 6


def test_it_is_woken_when_nobody_of_another_line_waits_any_more(woken: list[str]) -> None:
    beside: list[Slots] = []
    ports = TaskPorts([range(10, 30)])
    jobs = Slots(9, ROOM, woken.append, beside=beside, ports=ports)
    replicas = Slots(9, ROOM, lambda _: None, kind="model", beside=beside)
    jobs.sync(plain("other", "5G", Phase.RUNNING))
    jobs.sync(job := elastic(Phase.RUNNING, world={"worker": 2}))
    replicas.sync(plain("replica", "2G"))
    assert not jobs.larger_world(job), "the replica waits, and there is room for one more only"
    replicas.forget("replica")
    assert woken == ["elastic"]
    assert workers(jobs.larger_world(job)) == 3


def test_a_job_that_is_not_elastic_never_grows(slots: Slots, woken: list[str]) -> None:
    slots.sync(gang := job_in(Phase.RUNNING, fields={"worker_count": 2, "recipe": "pytorch"}))
    slots.sync(plain("other", "1G", Phase.RUNNING))
    slots.sync(plain("other", "1G", Phase.SUCCEEDED))
    assert woken == []
    assert not slots.larger_world(gang)
    assert not slots.world_for(gang)


def test_two_that_could_grow_share_what_is_free(slots: Slots) -> None:
    one = elastic(Phase.RUNNING, world={"worker": 2}, uid="one")
    two = elastic(Phase.RUNNING, world={"worker": 2}, uid="two")
    slots.sync(one)
    slots.sync(two)
    grown = slots.larger_world(one)
    assert workers(grown) == 6
    status = replace(one.status, phase=Phase.STOPPING, next_world=grown)
    slots.sync(replace(one, status=status))
    assert not slots.larger_world(two)
