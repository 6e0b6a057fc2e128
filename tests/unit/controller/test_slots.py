"""Who may run: bounded, in order, and nobody starves."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cloud_ml.controller.slots import Slots
from cloud_ml.domain.jobs.phases import ACTIVE, TERMINAL, Phase
from cloud_ml.engines.base import Capacity
from support.jobs import NOW, job_in

GIB = 2**30


@pytest.fixture
def woken() -> list[str]:
    return []


@pytest.fixture
def slots(woken: list[str]) -> Slots:
    return Slots(2, Capacity(cpu_millis=4000, memory_bytes=4 * GIB), woken.append)


def queued(uid: str, after_s: float = 0, *, rank: int = 0, memory: str | None = None):  # type: ignore[no-untyped-def]
    fields = {"enable_rank": rank, "memory_limit": memory}
    return job_in(Phase.QUEUED, uid=uid, queued_at=NOW + timedelta(seconds=after_s), fields=fields)


def test_no_more_than_so_many(slots: Slots, woken: list[str]) -> None:
    jobs = [queued(uid, number) for number, uid in enumerate("abc")]
    for job in jobs:
        slots.sync(job)
    assert [slots.take(job) for job in jobs] == [True, True, False]
    slots.sync(job_in(Phase.SUCCEEDED, uid="a"))
    assert woken[-1] == "c", "the one whose turn it is gets a look"
    assert slots.take(jobs[2])


def test_asking_again_keeps_the_place(slots: Slots) -> None:
    job = queued("a")
    slots.sync(job)
    assert slots.take(job)
    assert slots.take(job)
    for uid in "bc":
        slots.sync(queued(uid))
    assert slots.take(queued("b"))
    assert not slots.take(queued("c")), "the place was not taken twice"


def test_priority_goes_before_age_and_age_before_luck(slots: Slots) -> None:
    for job in (late := queued("late", 9), early := queued("early", 1), urgent := queued("urgent", 99, rank=1)):
        slots.sync(job)
    assert not slots.take(late)
    assert not slots.take(early)
    assert slots.take(urgent)
    assert not slots.take(late)
    assert slots.take(early)


@pytest.mark.parametrize("phase", sorted(ACTIVE))
def test_after_a_restart_of_the_controller_active_jobs_hold_their_places(slots: Slots, phase: Phase) -> None:
    for uid in "ab":
        slots.sync(job_in(phase, uid=uid))
    waiting = queued("c")
    slots.sync(waiting)
    assert not slots.take(waiting)


@pytest.mark.parametrize("phase", [*sorted(TERMINAL), Phase.SAVED])
def test_a_job_that_is_over_or_saved_holds_nothing(slots: Slots, phase: Phase) -> None:
    for uid in "abcd":
        slots.sync(job_in(phase, uid=uid))
    job = queued("e")
    slots.sync(job)
    assert slots.take(job)


def test_memory_limits_together_stay_within_the_machine(slots: Slots, woken: list[str]) -> None:
    big, bigger = queued("big", 1, memory="3G"), queued("bigger", 2, memory="2G")
    slots.sync(big)
    slots.sync(bigger)
    assert slots.take(big)
    assert not slots.take(bigger)
    slots.forget("big")
    assert woken[-1] == "bigger"
    assert slots.take(bigger)


def test_a_small_job_does_not_overtake_a_big_one_for_ever(slots: Slots) -> None:
    running, big, small = queued("running", 0, memory="3G"), queued("big", 1, memory="2G"), queued("small", 2)
    for job in (running, big, small):
        slots.sync(job)
    assert slots.take(running)
    assert not slots.take(small), "it waits behind the big one"
    slots.forget("running")
    assert slots.take(big)
    assert slots.take(small)


def test_what_fits_no_machine_still_runs_alone(slots: Slots) -> None:
    huge = queued("huge", memory="9G")
    slots.sync(huge)
    assert slots.take(huge)


def test_a_cancelled_job_in_the_line_holds_nobody_up(slots: Slots, woken: list[str]) -> None:
    for number, uid in enumerate("abcd"):
        slots.sync(queued(uid, number))
    assert slots.take(queued("a"))
    assert slots.take(queued("b"))
    slots.sync(job_in(Phase.STOPPED, uid="c"))
    slots.sync(job_in(Phase.SUCCEEDED, uid="a"))
    assert woken[-1] == "d"
    assert slots.take(queued("d", 3))


def test_forgetting_a_stranger_is_nothing(slots: Slots, woken: list[str]) -> None:
    slots.forget("nobody")
    assert woken == []
