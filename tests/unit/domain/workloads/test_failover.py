"""What failures cost, as it is noted from one look to the next."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from cloud_ml.domain.observed import GangState, ObservedGang, ObservedProcess
from cloud_ml.domain.workloads.checkpoints import NotedCheckpoint
from cloud_ml.domain.workloads.decide import decide
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.domain.workloads.record import WorkloadRecord
from cloud_ml.domain.workloads.recovery import Recoveries, Recovery, lost_work_s, with_recovery
from cloud_ml.domain.workloads.rules import Rules
from cloud_ml.domain.workloads.spec import Desired
from cloud_ml.models import codec
from support.jobs import NOW, gang_in, job_in, with_desired


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def alone(number: int, lost_s: float | None = 2.0) -> Recovery:
    return Recovery("worker", "NonZeroExit", 0.5, lost_s, {"detect": 0.1}, number=number)


def look(job: WorkloadRecord, gang: ObservedGang | None, seconds: float) -> WorkloadRecord:
    """The job after a look at its gang."""
    decision = decide(job, [gang] if gang else [], after(seconds), has_slot=True, rules=Rules())
    return job if decision.status is None else replace(job, status=decision.status)


def failed(attempt: int, begin: float, end: float, **facts: object) -> ObservedGang:
    process = ObservedProcess(
        "worker",
        0,
        running=False,
        reason=Reason.SIGNALED,
        message="worker-0 was killed",
        started_at=after(begin),
        finished_at=after(end),
    )
    gang = gang_in(GangState.EXITED, Reason.SIGNALED, "worker-0 was killed", attempt=attempt)
    return replace(gang, processes=(process,), stages={"ended": after(end + 0.25)}, **facts)


def running(attempt: int, begin: float) -> ObservedGang:
    process = ObservedProcess("worker", 0, running=True, started_at=after(begin))
    stages = {"environment": after(begin - 0.5), "started": after(begin)}
    return gang_in(GangState.RUNNING, attempt=attempt, processes=(process,), stages=stages)


def test_restarts_of_tasks_are_noted_once() -> None:
    job, gang = job_in(Phase.RUNNING), gang_in(GangState.RUNNING, recoveries=(alone(1),))
    for _ in range(3):
        job = look(job, gang, 1)
    assert (job.status.recoveries.count, job.status.recoveries.lost_s) == (1, 2.0)
    before = job.status.recoveries
    job = look(job, replace(gang, recoveries=(alone(1), alone(2), alone(3, None))), 2)
    known = job.status.recoveries
    assert (known.count, known.lost_s, known.down_s) == (3, 4.0, 1.5)
    assert known.since(before) == (alone(2), alone(3, None))
    assert known.since(known) == ()


def test_restarts_that_nobody_saw_are_noted_with_the_end() -> None:
    ended = failed(1, 0, 9, recoveries=(alone(1), alone(2)))
    ended = replace(ended, reason=Reason.COMPLETED)
    assert look(job_in(Phase.RUNNING), ended, 10).status.recoveries.count == 2
    again = look(job_in(Phase.RUNNING, fields={"max_retries": 1}), ended, 10)
    assert again.status.recoveries.count == 2


def test_those_of_another_attempt_are_counted_from_one() -> None:
    job = job_in(Phase.RUNNING, fields={"max_retries": 3})
    job = look(job, failed(1, 0, 9, recoveries=(alone(1), alone(2))), 10)
    assert (job.status.attempt, job.status.recoveries.count) == (2, 2)
    job = replace(job, status=replace(job.status, phase=Phase.RUNNING))
    job = look(job, replace(running(2, 20), recoveries=(alone(1),)), 21)
    assert job.status.recoveries.count == 4, "two tasks, the gang, and a task of its next attempt"


def test_more_than_an_engine_keeps_are_counted_nevertheless() -> None:
    gang = gang_in(GangState.RUNNING, recoveries=tuple(alone(number) for number in range(31, 51)))
    known = look(job_in(Phase.RUNNING), gang, 1).status.recoveries
    assert (known.count, len(known.since(Recoveries()))) == (50, 20)


def test_another_attempt_that_runs_has_recovered_from_the_last_failure() -> None:
    job = job_in(Phase.RUNNING, fields={"max_retries": 3}, started_at=NOW)
    saved = NotedCheckpoint("ckpt-7", 7, after(60))
    job = look(job, failed(1, 0, 100, checkpoint=saved), 100.5)
    assert job.status.recoveries.count == 0, "it does not run yet"
    for seconds, gang in ((101.5, None), (103, running(2, 103)), (104, running(2, 103))):
        job = look(job, gang, seconds)
    known = job.status.recoveries
    (recovery,) = known.latest
    assert (known.count, known.lost_s, known.down_s) == (1, 40.0, 3.0)
    assert (recovery.role, recovery.reason, recovery.of_gang) == ("worker", "Signaled", True)
    assert recovery.stages == {"detect": 0.25, "end": 0.25, "stage": 1.0, "start": 0.5}


def test_an_attempt_that_never_ran_belongs_to_the_same_recovery() -> None:
    job = look(job_in(Phase.RUNNING, fields={"max_retries": 3}), failed(1, 0, 10), 11)
    job = look(job, None, 12)
    job = look(job, gang_in(GangState.LOST, Reason.SUPERVISOR_LOST, "lost", attempt=2), 13)
    assert (job.status.attempt, job.status.recoveries.count) == (3, 0)
    job = look(look(job, None, 20), running(3, 25), 26)
    assert (job.status.recoveries.count, job.status.recoveries.down_s) == (1, 15.0)


@pytest.mark.parametrize("reason", [Reason.SUPERVISOR_LOST, Reason.NODE_LOST])
def test_nobody_knows_what_work_a_lost_attempt_has_lost(reason: Reason) -> None:
    job = job_in(Phase.RUNNING, fields={"max_retries": 3}, started_at=NOW)
    saved = NotedCheckpoint("ckpt-7", 7, after(60))
    lost = failed(1, 0, 7200, checkpoint=saved)  # when it was noticed, not when it ended
    job = look(job, replace(lost, state=GangState.LOST, reason=reason, stages={}), 7200)
    job = look(look(job, None, 7201), running(2, 7203), 7204)
    known = job.status.recoveries
    assert (known.count, known.latest[0].lost_s) == (1, None)


def test_a_pause_is_no_part_of_a_recovery() -> None:
    job = look(job_in(Phase.RUNNING, fields={"max_retries": 3}), failed(1, 0, 10), 11)
    job = look(replace(job, spec=with_desired(Desired.PAUSED)(job.spec)), None, 11)
    assert job.status.phase is Phase.PAUSED
    job = look(replace(job, spec=with_desired(Desired.RUN)(job.spec)), None, 3600)
    job = look(look(job, None, 3605), running(2, 3610), 3611)
    assert (job.status.recoveries.count, job.status.recoveries.down_s) == (1, 10.0)


@pytest.mark.parametrize("fields", [{"max_retries": 0}, {"max_retries": 2}])
def test_an_attempt_that_is_followed_by_none_has_recovered_from_nothing(
    fields: dict[str, int],
) -> None:
    job = look(job_in(Phase.RUNNING, fields=fields), failed(1, 0, 10), 11)
    assert (job.status.recoveries.failure is None) == (not fields["max_retries"])
    assert job.status.recoveries.count == 0


def test_lost_work_begins_with_the_checkpoint_or_the_later_start() -> None:
    assert lost_work_s(NOW, after(10), None) == 10
    assert lost_work_s(NOW, after(10), NotedCheckpoint("a", 1, after(7))) == 3
    assert lost_work_s(NOW, after(10), NotedCheckpoint("a", 1, after(-7))) == 10
    assert lost_work_s(NOW, after(10), NotedCheckpoint("a", 1, after(1e9))) == 0
    assert lost_work_s(None, after(10), None) is None
    assert lost_work_s(NOW, None, None) is None


def test_a_status_of_before_is_read_and_one_with_recoveries_comes_back() -> None:
    known = Recoveries(2, 1.0, 2.0, (alone(1),), noted=1)
    status = WorkloadStatus(recoveries=known)
    document = codec.encode(status)
    assert codec.decode(WorkloadStatus, document) == status
    del document["recoveries"]
    assert codec.decode(WorkloadStatus, document).recoveries == Recoveries()


def test_recoveries_are_numbered_whatever_else_starts_again() -> None:
    known: tuple[Recovery, ...] = ()
    for _ in range(30):
        known = with_recovery(known, alone(0))
    assert [one.number for one in known] == list(range(11, 31))
