"""What follows from one look at a job of many tasks that know no other."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from cloud_ml.domain.observed import GangState, ObservedGang, ObservedProcess
from cloud_ml.domain.workloads.decide import decide
from cloud_ml.domain.workloads.phases import Phase, TaskStatus
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.domain.workloads.record import WorkloadDecision, WorkloadRecord
from cloud_ml.domain.workloads.rules import Rules
from cloud_ml.domain.workloads.spec import Desired
from support.jobs import NOW, gang_in, job_in

ARRAY = {"array": "0-3%2"}
BAD = Reason.NON_ZERO_EXIT


def look(job: WorkloadRecord, gang: ObservedGang) -> WorkloadDecision:
    return decide(job, [gang], NOW, has_slot=False, rules=Rules())


def task(index: int, reason: Reason | None = None, **more: Any) -> ObservedProcess:
    started = NOW - timedelta(seconds=10)
    message = f"task-{index} exited with code 3" if reason is BAD else ""
    return ObservedProcess(
        "task", index, False, reason, **({"started_at": started, "message": message} | more)
    )


DONE, FAILED = task(0, Reason.COMPLETED), task(1, BAD, exit_code=3)
LIVE = ObservedProcess("task", 2, running=True, started_at=NOW)
WAITING = ObservedProcess("task", 3, running=False)


def names_of(tasks: tuple[TaskStatus, ...]) -> list[str]:
    return [one.name for one in tasks]


def test_a_task_that_failed_for_good_is_told_once() -> None:
    job = job_in(Phase.RUNNING, fields=ARRAY | {"max_failed": 1})
    gang = gang_in(GangState.RUNNING, processes=(DONE, FAILED, LIVE, WAITING))
    first = look(job, gang)
    assert [(one.reason, one.message) for one in first.events] == [
        (Reason.TASK_FAILED, "task-1 failed: task-1 exited with code 3")
    ]
    assert first.status is not None
    assert [one.failed for one in first.status.tasks] == [False, True, False, False]
    again = job_in(Phase.RUNNING, fields=ARRAY, tasks=first.status.tasks)
    assert look(again, gang).events == ()


@pytest.mark.parametrize("restarting", [True, False])
def test_a_task_that_starts_again_is_not_told_to_have_failed(restarting: bool) -> None:
    job = job_in(Phase.RUNNING, fields=ARRAY)
    gang = gang_in(GangState.RUNNING, processes=(task(1, BAD, restarting=restarting), LIVE))
    assert bool(look(job, gang).events) is not restarting


def test_tasks_that_hang_together_are_told_once() -> None:
    job = job_in(Phase.RUNNING, fields={"max_retries": 1})
    first, second = (task(index, Reason.HUNG, message=f"Hung: {index}") for index in (0, 1))
    gang = gang_in(GangState.EXITED, Reason.HUNG, first.message, processes=(first, second))
    assert [one.reason for one in look(job, gang).events] == [Reason.RESTARTING]


def test_the_end_names_the_task_that_was_one_too_many() -> None:
    job = job_in(Phase.RUNNING, fields=ARRAY | {"max_failed": 1})
    last = task(2, BAD, exit_code=9)
    message = f"{last.message}; 2 tasks have failed, and max_failed is 1"
    stopped = task(3, Reason.CANCELLED, message="not started, because task-2 had ended")
    gang = gang_in(GangState.EXITED, BAD, message, processes=(DONE, FAILED, last, stopped))
    ended = look(job, gang)
    assert ended.status is not None
    assert (ended.status.phase, ended.status.exit_code) == (Phase.FAILED, 9)
    messages = [one.message for one in ended.events if one.reason is Reason.TASK_FAILED]
    assert messages == ["task-1 failed: task-1 exited with code 3"]


def test_a_success_has_the_exit_code_of_a_task_that_completed() -> None:
    job = job_in(Phase.RUNNING, fields=ARRAY | {"max_failed": 1})
    good = task(2, Reason.COMPLETED, exit_code=0)
    gang = gang_in(GangState.EXITED, Reason.COMPLETED, "completed", processes=(FAILED, good))
    ended = look(job, gang).status
    assert ended is not None
    assert (ended.phase, ended.exit_code) == (Phase.SUCCEEDED, 0)


@pytest.mark.parametrize("reason", [BAD, Reason.SIGNALED, Reason.OUT_OF_MEMORY])
def test_the_failure_of_a_task_is_followed_by_no_attempt(reason: Reason) -> None:
    """It had restarts of its own."""
    job = job_in(Phase.RUNNING, fields=ARRAY | {"max_retries": 5})
    gang = gang_in(GangState.EXITED, reason, "over", processes=(DONE, task(1, reason, exit_code=3)))
    ended = look(job, gang).status
    assert ended is not None
    assert (ended.phase, ended.attempt) == (Phase.FAILED, 1)


@pytest.mark.parametrize(("action", "used"), [("restart-gang", 1), ("free", 0)])
def test_a_rule_asks_for_another_attempt(action: str, used: int) -> None:
    rules = {"restart": {"rules": [{"exit_codes": [3], "action": action}]}}
    job = job_in(Phase.RUNNING, fields=ARRAY | rules)
    gang = gang_in(GangState.EXITED, BAD, FAILED.message, processes=(DONE, FAILED, LIVE, WAITING))
    again = look(job, gang).status
    assert again is not None
    assert (again.phase, again.attempt, again.retries_used) == (Phase.RESTARTING, 2, used)
    assert names_of(again.tasks) == ["task-0"]


@pytest.mark.parametrize("fields", [ARRAY, {"worker_count": 2, "recipe": "cluster"}])
def test_what_has_completed_is_kept_when_a_gang_is_lost(fields: dict[str, Any]) -> None:
    job = job_in(Phase.RUNNING, fields=fields)
    gang = gang_in(GangState.LOST, Reason.SUPERVISOR_LOST, "gone", processes=(DONE, FAILED, LIVE))
    again = look(job, gang).status
    assert again is not None
    assert (again.phase, again.attempt, again.retries_used) == (Phase.RESTARTING, 2, 0)
    assert names_of(again.tasks) == (["task-0"] if fields is ARRAY else [])


def test_what_has_completed_is_kept_over_many_attempts() -> None:
    """Also over a pause, and where an attempt has left no trace."""
    before = (TaskStatus("task-1", reason="Completed"), TaskStatus("task-3", reason="Completed"))
    job = job_in(Phase.STOPPING, attempt=2, desired=Desired.PAUSED, fields=ARRAY, tasks=before)
    stopped = task(2, Reason.CANCELLED)
    gang = gang_in(
        GangState.EXITED, Reason.CANCELLED, "stopped", attempt=2, processes=(DONE, stopped)
    )
    paused = look(job, gang).status
    assert paused is not None
    assert (paused.phase, paused.attempt) == (Phase.PAUSED, 3)
    assert names_of(paused.tasks) == ["task-0", "task-1", "task-3"]
    running = job_in(Phase.RUNNING, attempt=3, fields=ARRAY, tasks=paused.tasks)
    again = decide(running, [], NOW, has_slot=False, rules=Rules()).status
    assert again is not None
    assert names_of(again.tasks) == ["task-0", "task-1", "task-3"]


def test_the_only_task_that_has_completed_is_kept_when_an_attempt_never_started() -> None:
    before = (TaskStatus("task-1", reason="Completed"),)
    job = job_in(Phase.STOPPING, attempt=2, desired=Desired.PAUSED, fields=ARRAY, tasks=before)
    paused = look(job, gang_in(GangState.TOMBSTONED, attempt=2)).status
    assert paused is not None
    assert names_of(paused.tasks) == ["task-1"]


def test_all_tasks_start_again_after_a_good_end() -> None:
    job = job_in(Phase.RUNNING, fields=ARRAY | {"restart": {"policy": "Always"}})
    gang = gang_in(GangState.EXITED, Reason.COMPLETED, "completed", processes=(DONE,))
    again = look(job, gang).status
    assert again is not None
    assert (again.phase, again.tasks) == (Phase.RESTARTING, ())
