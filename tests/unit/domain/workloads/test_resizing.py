"""When a job gives way to a larger attempt, and what is said about it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from cloud_ml.domain.jobs.kind import TRAIN_JOB, TrainJobRecord
from cloud_ml.domain.observed import GangState, ObservedGang, ObservedProcess
from cloud_ml.domain.workloads.actions import StopGang
from cloud_ml.domain.workloads.decide import decide
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.domain.workloads.record import WorkloadDecision
from cloud_ml.domain.workloads.resizing import Growth
from cloud_ml.domain.workloads.rules import Rules
from cloud_ml.domain.workloads.spec import Desired
from cloud_ml.models import codec
from support.jobs import NOW, gang_in, job_in, restarted_after, with_desired

SECOND = timedelta(seconds=1)
TWO, FOUR = {"worker": 2}, {"worker": 4}
ROOM = Growth(FOUR, saved_at=NOW + SECOND)
ELASTIC = {
    "elastic": {"worker": {"min": 1, "max": 4}, "every_s": 60},
    "recipe": "pytorch",
    "max_retries": 2,
}


def elastic(phase: Phase = Phase.RUNNING, **status: Any) -> TrainJobRecord:
    known: dict[str, Any] = {"world": TWO, "starting_at": NOW, "started_at": NOW, **status}
    return job_in(phase, fields=ELASTIC, **known)


def living(state: GangState = GangState.RUNNING, **facts: Any) -> ObservedGang:
    processes = tuple(
        ObservedProcess("worker", index, running=True, started_at=NOW) for index in range(2)
    )
    return gang_in(state, processes=processes, **facts)


def step(
    job: TrainJobRecord, *gangs: ObservedGang, after_s: float = 2, **given: Any
) -> WorkloadDecision:
    now = NOW + timedelta(seconds=after_s)
    return decide(job, gangs, now, rules=Rules(), **{"has_slot": False, **given})


def events_of(decision: WorkloadDecision) -> list[tuple[str, str]]:
    return [(event.reason, event.message) for event in decision.events]


def test_it_gives_way_after_a_checkpoint_of_its_own() -> None:
    decision = step(elastic(), living(), growth=ROOM)
    assert decision.status is not None
    assert decision.status.phase is Phase.STOPPING
    assert (decision.status.world, decision.status.next_world) == (TWO, FOUR)
    assert events_of(decision) == [
        ("Stopping", "to be resized from 2 to 4 tasks; its processes have 10 s to end")
    ]


@pytest.mark.parametrize(
    "growth", [None, Growth(FOUR), Growth(FOUR, NOW), Growth(FOUR, NOW - SECOND)]
)
def test_it_runs_on_without_room_or_a_checkpoint_of_this_attempt(growth: Growth | None) -> None:
    decision = step(elastic(), living(), growth=growth)
    assert decision.status is None
    assert not decision.actions
    again = None if growth is None else NOW + timedelta(seconds=7)
    assert decision.requeue_at == again


def test_it_does_so_at_most_every_so_often() -> None:
    job = elastic(resized_at=NOW - 30 * SECOND)
    decision = step(job, living(), growth=ROOM)
    assert decision.status is None
    assert decision.requeue_at == NOW + 30 * SECOND
    late = step(job, living(), growth=ROOM, after_s=30)
    assert late.status is not None
    assert late.status.phase is Phase.STOPPING


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.FINISHING])
def test_only_what_runs_gives_way(phase: Phase) -> None:
    state = GangState.STAGING if phase is Phase.STARTING else GangState.FINISHING
    decision = step(elastic(phase), living(state), growth=ROOM)
    assert decision.status is None
    assert not decision.actions


def stopping() -> TrainJobRecord:
    found = step(elastic(retries_used=1), living(), growth=ROOM).status
    return replace(elastic(), status=found)


def test_its_tasks_are_told_why() -> None:
    assert step(stopping(), living()).actions == [StopGang(1, 10.0, Reason.RESIZED)]
    paused = replace(stopping(), spec=with_desired(Desired.PAUSED)(stopping().spec))
    assert step(paused, living()).actions == [StopGang(1, 10.0, Reason.PAUSED)]


def test_the_larger_attempt_costs_no_retry() -> None:
    over = living(GangState.EXITED, reason=Reason.CANCELLED)
    again = step(stopping(), over)
    assert again.status is not None
    assert (again.status.phase, again.status.attempt) == (Phase.RESTARTING, 2)
    assert (again.status.reason, again.status.message) == ("Resized", "resized from 2 to 4 tasks")
    assert (again.status.retries_used, again.status.failures) == (1, 0)
    assert events_of(again)[-1] == (
        "Restarting",
        "attempt 2 follows, resized from 2 to 4 tasks; attempt 1 ran for 2s",
    )
    begun = step(replace(stopping(), status=again.status), over, world=FOUR, ports=(1, 2, 3, 4))
    assert begun.status is not None
    assert (begun.status.phase, begun.status.world) == (Phase.STARTING, FOUR)
    assert begun.status.next_world == {}
    assert begun.status.resized_at == NOW + 2 * SECOND
    assert events_of(begun) == [
        ("Resized", "resized from 2 to 4 tasks"),
        ("Starting", "attempt 2 is starting with 4 of 4 tasks"),
    ]


def test_what_has_ended_well_meanwhile_has_succeeded() -> None:
    done = tuple(
        ObservedProcess("worker", index, running=False, reason=Reason.COMPLETED, exit_code=0)
        for index in range(2)
    )
    over = gang_in(GangState.EXITED, Reason.COMPLETED, processes=done)
    decision = step(stopping(), over)
    assert decision.status is not None
    assert decision.status.phase is Phase.SUCCEEDED


@pytest.mark.parametrize(
    ("change", "phase"),
    [
        (with_desired(Desired.PAUSED), Phase.PAUSED),
        (with_desired(Desired.STOPPED), Phase.STOPPED),
        (restarted_after(1), Phase.RESTARTING),
    ],
)
def test_other_wishes_come_before_the_larger_attempt(change: Any, phase: Phase) -> None:
    job = replace(stopping(), spec=change(stopping().spec))
    decision = step(job, living(GangState.EXITED, reason=Reason.CANCELLED))
    assert decision.status is not None
    assert decision.status.phase is phase
    assert phase is not Phase.PAUSED or decision.status.next_world == {}


def test_the_next_attempt_may_be_smaller() -> None:
    job = elastic(Phase.RESTARTING, attempt=2)
    decision = step(job, world={"worker": 1})
    assert decision.status is not None
    assert decision.status.world == {"worker": 1}
    assert events_of(decision)[0] == ("Resized", "resized from 2 to 1 tasks")


def test_the_first_attempt_is_no_change() -> None:
    job = elastic(Phase.QUEUED, world={})
    decision = step(job, has_slot=True, world=TWO)
    assert decision.status is not None
    assert decision.status.resized_at is None
    assert events_of(decision) == [("Starting", "attempt 1 is starting with 2 of 4 tasks")]


def test_a_status_of_the_version_before_has_no_world() -> None:
    stored = codec.encode(elastic().status)
    assert TRAIN_JOB.decode_status(stored) == elastic().status
    for name in ("world", "next_world", "resized_at"):
        del stored[name]
    assert TRAIN_JOB.decode_status(stored).world == {}
