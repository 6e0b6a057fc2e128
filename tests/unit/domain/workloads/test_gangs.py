"""What the end of one process means for its gang."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cloud_ml.domain.observed import ObservedProcess
from cloud_ml.domain.workloads.exits import ExitAction, ExitRule, ExitRules, RestartPolicy
from cloud_ml.domain.workloads.gangs import (
    AfterEnd,
    TaskRestarts,
    after_end,
    completed_sentence,
    ended_on_request,
    explain_no_restart,
    next_to_start,
    restart_delay_s,
    restart_process,
    too_many_failed,
    with_end,
)
from cloud_ml.domain.workloads.progress import MOST_SAME_ENDS, Milestone, RepeatedEnd
from cloud_ml.domain.workloads.reasons import Reason


def process(role: str, index: int = 0, reason: Reason | None = None) -> ObservedProcess:
    return ObservedProcess(role, index, running=reason is None, reason=reason)


@pytest.mark.parametrize(
    ("ended", "over"),
    [
        (process("master", 0, Reason.COMPLETED), True),
        (process("master", 0, Reason.NON_ZERO_EXIT), True),
        (process("worker", 0, Reason.COMPLETED), False),
        (process("worker", 1, Reason.OUT_OF_MEMORY), True),
        (process("worker", 1, Reason.SIGNALED), True),
    ],
)
def test_the_chief_and_every_failure_end_a_gang(ended: ObservedProcess, over: bool) -> None:
    gang = [process("master"), process("worker", 0), process("worker", 1)]
    assert (after_end(gang, ended) is AfterEnd.END_GANG) is over


ALL = ("worker-0", "worker-1")


@pytest.mark.parametrize(
    ("first", "ended", "over"),
    [
        (None, process("worker", 1, Reason.COMPLETED), False),
        (Reason.COMPLETED, process("worker", 1, Reason.COMPLETED), True),
        (None, process("worker", 1, Reason.NON_ZERO_EXIT), True),
        (None, process("ps", 0, Reason.COMPLETED), False),
        (None, process("ps", 0, Reason.SIGNALED), True),
        (None, process("evaluator", 0, Reason.SIGNALED), False),
        (Reason.COMPLETED, process("evaluator", 0, Reason.COMPLETED), False),
    ],
)
def test_a_gang_of_equals_waits_for_all_of_them(
    first: Reason | None, ended: ObservedProcess, over: bool
) -> None:
    gang = [process("worker", 0, first), process("worker", 1), process("ps"), process("evaluator")]
    assert (after_end(gang, ended, ALL) is AfterEnd.END_GANG) is over


NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
AGAIN = TaskRestarts(("worker-1",), most=2)


def failed(ran_s: float = 3600.0, *, restarts: int = 0, quick: int = 0) -> ObservedProcess:
    return ObservedProcess(
        "worker",
        1,
        running=False,
        reason=Reason.NON_ZERO_EXIT,
        message="worker-1 exited with code 1",
        started_at=NOW - timedelta(seconds=ran_s),
        finished_at=NOW,
        restarts=restarts,
        quick_failures=quick,
    )


def follows(ended: ObservedProcess, restarts: TaskRestarts = AGAIN, used: int = 0) -> AfterEnd:
    other = replace(process("worker", 0), restarts=used)
    return after_end([other, ended], ended, ALL, restarts)


def test_a_task_starts_again_as_often_as_it_may() -> None:
    assert follows(failed()) is AfterEnd.RESTART_TASK
    assert follows(failed(restarts=1)) is AfterEnd.RESTART_TASK
    assert follows(failed(restarts=2)) is AfterEnd.END_GANG
    assert follows(failed(restarts=1), used=1) is AfterEnd.END_GANG  # all tasks share the budget


def test_a_failed_task_that_waits_for_its_restart_has_used_the_budget() -> None:
    waits = replace(failed(), index=0, restarting=True)
    on_request = ended_on_request(process("worker", 0), NOW)
    once = replace(AGAIN, most=1)
    assert after_end([waits, failed()], failed(), ALL, once) is AfterEnd.END_GANG
    assert after_end([on_request, failed()], failed(), ALL, once) is AfterEnd.RESTART_TASK


def test_what_earlier_attempts_have_used_of_the_budget_is_gone() -> None:
    left = replace(AGAIN, most=3, used=2)
    assert follows(failed(), left) is AfterEnd.RESTART_TASK
    none = replace(left, used=3)
    assert follows(failed(), none) is AfterEnd.END_GANG
    message = explain_no_restart([failed()], failed(), none).message
    assert message.endswith("used up (task_retries 3, of which 3 in earlier attempts)")
    lost = replace(failed(), reason=Reason.NODE_LOST, exit_code=None)
    assert follows(lost, none) is AfterEnd.RESTART_TASK, "that costs nothing"


def test_only_restarts_that_happened_on_request_are_free() -> None:
    requested_twice = replace(process("worker", 0), requested_restarts=2)
    again = restart_process(ended_on_request(requested_twice, NOW), NOW)
    assert (again.restarts, again.free_restarts) == (1, 1)
    failed_before_the_request = replace(failed(), requested_restarts=1, restarting=True)
    again = restart_process(failed_before_the_request, NOW)
    assert (again.restarts, again.free_restarts) == (1, 0)
    assert follows(replace(failed(restarts=3), free_restarts=2)) is AfterEnd.RESTART_TASK
    assert follows(replace(failed(restarts=3), free_restarts=1)) is AfterEnd.END_GANG


@pytest.mark.parametrize("reason", [Reason.NODE_LOST, Reason.PREEMPTED])
def test_the_loss_of_its_place_costs_a_task_nothing(reason: Reason) -> None:
    lost = replace(failed(1.0, quick=2), reason=reason, exit_code=None)
    assert follows(lost) is AfterEnd.RESTART_TASK, "it is no quick failure"
    assert follows(lost, used=AGAIN.most) is AfterEnd.RESTART_TASK
    again = restart_process(with_end(lost, Milestone()), NOW)
    assert (again.restarts, again.free_restarts, again.quick_failures) == (1, 1, 2)
    assert again.same_ends == lost.same_ends
    assert follows(lost, replace(AGAIN, most=0)) is AfterEnd.END_GANG
    assert follows(lost, replace(AGAIN, tasks=())) is AfterEnd.END_GANG
    never = replace(AGAIN, exits=ExitRules(RestartPolicy.NEVER))
    assert follows(lost, never) is AfterEnd.END_GANG


def test_a_task_that_starts_again_no_more_says_why() -> None:
    def explanation(ended: ObservedProcess, restarts: TaskRestarts = AGAIN) -> str:
        assert follows(ended, restarts) is AfterEnd.END_GANG
        message = explain_no_restart([ended], ended, restarts).message
        assert message.startswith("worker-1 exited with code 1")
        return message.removeprefix("worker-1 exited with code 1")

    why = "; it does not start again alone: "
    assert (
        explanation(failed(restarts=2))
        == f"{why}the restarts of tasks are used up (task_retries 2)"
    )
    quick = failed(1, restarts=1, quick=2)
    assert explanation(quick) == f"{why}3 starts in a row failed within 60 s"
    same = replace(failed(restarts=1), same_ends=RepeatedEnd(times=MOST_SAME_ENDS))
    assert (
        explanation(same)
        == f"{why}it ended 3 times in the same way without a new checkpoint or step"
    )
    assert explanation(failed(), TaskRestarts()) == ""
    assert explanation(replace(failed(), reason=Reason.OUT_OF_MEMORY)) == ""


@pytest.mark.parametrize("restarts", [TaskRestarts(), TaskRestarts(("worker-0",), 9)])
def test_a_task_that_may_not_start_again_ends_the_gang(restarts: TaskRestarts) -> None:
    assert follows(failed(), restarts) is AfterEnd.END_GANG


@pytest.mark.parametrize("reason", [Reason.OUT_OF_MEMORY, Reason.START_FAILED, Reason.CANCELLED])
def test_what_would_only_repeat_ends_the_gang(reason: Reason) -> None:
    assert follows(replace(failed(), reason=reason)) is AfterEnd.END_GANG


RULED = ExitRules(
    RestartPolicy.EXIT_CODE,
    (
        ExitRule(ExitAction.RESTART_GANG, (7,)),
        ExitRule(ExitAction.RESTART_TASK, (8,)),
        ExitRule(ExitAction.FAIL, (9,)),
    ),
)


@pytest.mark.parametrize(
    ("tasks", "code", "again"),
    [
        (("worker-1",), 1, False),
        (("worker-1",), 143, True),
        (("worker-1",), 7, False),
        (("worker-1",), 8, True),
        (("worker-1",), 9, False),
        ((), 143, False),
        ((), 8, True),
    ],
)
def test_rules_of_exits_hold_for_single_tasks(
    tasks: tuple[str, ...], code: int, *, again: bool
) -> None:
    ended = replace(failed(), exit_code=code)
    expected = AfterEnd.RESTART_TASK if again else AfterEnd.END_GANG
    assert follows(ended, TaskRestarts(tasks, 2, RULED)) is expected


def test_a_rule_may_name_what_lacked_memory() -> None:
    ended = replace(failed(), reason=Reason.OUT_OF_MEMORY, signal="SIGKILL")
    ruled = ExitRules(rules=(ExitRule(ExitAction.RESTART_TASK, (137,)),))
    assert follows(ended, TaskRestarts((), 1, ruled)) is AfterEnd.RESTART_TASK
    assert follows(ended, TaskRestarts(("worker-1",), 1)) is AfterEnd.END_GANG


def test_a_task_that_fails_quickly_three_times_ends_the_gang() -> None:
    many = TaskRestarts(("worker-1",), most=99)
    task = failed(1.0)
    for _ in range(2):
        assert follows(task, many) is AfterEnd.RESTART_TASK
        again = restart_process(task, NOW)
        assert (again.running, again.reason, again.last_end) == (True, None, task.message)
        task = replace(failed(1.0), restarts=again.restarts, quick_failures=again.quick_failures)
    assert follows(task, many) is AfterEnd.END_GANG
    assert restart_process(failed(100.0, quick=2), NOW).quick_failures == 0


@pytest.mark.parametrize(
    ("reason", "exit_code", "signal"),
    [(Reason.NON_ZERO_EXIT, 3, None), (Reason.SIGNALED, None, "SIGSEGV")],
)
def test_a_restarted_task_knows_how_it_ended_last(
    reason: Reason, exit_code: int | None, signal: str | None
) -> None:
    ended = replace(failed(), reason=reason, exit_code=exit_code, signal=signal)
    again = restart_process(ended, NOW)
    assert (again.reason, again.exit_code, again.signal) == (None, None, None)
    last = (again.last_reason, again.last_exit_code, again.last_signal)
    assert last == (reason, exit_code, signal)


def test_the_first_restart_is_at_once_and_later_ones_wait_longer() -> None:
    delays = [restart_delay_s(failed(restarts=count)) for count in (0, 1, 2, 3, 99)]
    assert delays == [0.0, 1.0, 2.0, 4.0, 60.0]


def test_a_task_whose_ends_are_all_the_same_starts_again_only_with_progress() -> None:
    restarts, now = TaskRestarts(("worker-0",), most=99), datetime(2026, 1, 1, tzinfo=UTC)
    task = replace(process("worker"), started_at=now)

    def end(task: ObservedProcess, milestone: Milestone) -> ObservedProcess:
        assert task.started_at is not None
        ended = replace(task, running=False, reason=Reason.NON_ZERO_EXIT, exit_code=1)
        ended = replace(ended, finished_at=task.started_at + timedelta(hours=1))
        return with_end(ended, milestone)

    for step in (None, None, 1, 1):
        ended = end(task, Milestone(step))
        assert after_end([ended], ended, (), restarts) is AfterEnd.RESTART_TASK
        task = restart_process(ended, now)
    ended = end(task, Milestone(1))
    assert ended.same_ends.times == 3
    assert after_end([ended], ended, (), restarts) is AfterEnd.END_GANG


@pytest.mark.parametrize(
    ("ran_s", "step", "expected"),
    [
        (3600, 2, AfterEnd.RESTART_TASK),
        (3600, 1, AfterEnd.END_GANG),
        (3599, 2, AfterEnd.END_GANG),
    ],
)
def test_a_task_gives_its_restarts_back_after_an_hour_with_progress(
    ran_s: int, step: int, expected: AfterEnd
) -> None:
    restarts = TaskRestarts(("worker-1",), most=1)
    task = restart_process(with_end(failed(100.0), Milestone(1)), NOW)
    ended = replace(task, running=False, reason=Reason.NON_ZERO_EXIT, exit_code=7)
    ended = with_end(replace(ended, finished_at=NOW + timedelta(seconds=ran_s)), Milestone(step))
    assert after_end([ended], ended, (), restarts) is expected
    assert ended.free_restarts == (1 if expected is AfterEnd.RESTART_TASK else 0)


ARRAY = tuple(f"task-{index}" for index in range(4))


def task(index: int, reason: Reason | None = None, **more: Any) -> ObservedProcess:
    return ObservedProcess("task", index, running=reason is None, reason=reason, **more)


BAD = Reason.NON_ZERO_EXIT


@pytest.mark.parametrize(
    ("others", "end", "max_failed", "expected"),
    [
        ([None, None, None], BAD, 0, AfterEnd.END_GANG),
        ([None, None, None], BAD, 1, AfterEnd.GO_ON),
        ([BAD, None, None], BAD, 1, AfterEnd.END_GANG),
        ([BAD, None, None], Reason.COMPLETED, 1, AfterEnd.GO_ON),
        ([BAD, Reason.COMPLETED, Reason.COMPLETED], Reason.COMPLETED, 1, AfterEnd.END_GANG),
        ([Reason.COMPLETED] * 3, BAD, 1, AfterEnd.COMPLETE_GANG),
        ([BAD] * 3, BAD, 4, AfterEnd.COMPLETE_GANG),
        ([BAD] * 3, Reason.OUT_OF_MEMORY, 3, AfterEnd.END_GANG),
    ],
)
def test_an_array_goes_on_until_all_have_ended_or_too_many_have_failed(
    others: list[Reason | None], end: Reason, max_failed: int, expected: AfterEnd
) -> None:
    ended = task(3, end)
    gang = [*(task(index, reason) for index, reason in enumerate(others)), ended]
    assert after_end(gang, ended, ARRAY, max_failed=max_failed) is expected


def test_a_task_that_starts_again_has_not_failed() -> None:
    ended = task(3, BAD)
    gang = [task(0, BAD, restarting=True), *(task(one, Reason.COMPLETED) for one in (1, 2)), ended]
    assert after_end(gang, ended, ARRAY, max_failed=1) is AfterEnd.GO_ON
    assert after_end(gang, ended, ARRAY, TaskRestarts(ARRAY, 9), 1) is AfterEnd.RESTART_TASK


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (ExitAction.FAIL, AfterEnd.GO_ON),
        (ExitAction.RESTART_GANG, AfterEnd.END_GANG),
        (ExitAction.FREE, AfterEnd.END_GANG),
        (ExitAction.RESTART_TASK, AfterEnd.RESTART_TASK),
    ],
)
def test_a_rule_decides_what_the_failure_of_a_task_of_an_array_means(
    action: ExitAction, expected: AfterEnd
) -> None:
    ended = task(3, BAD, exit_code=3)
    ruled = TaskRestarts(ARRAY, 9, ExitRules(rules=(ExitRule(action, (3,)),)))
    gang = [task(0), task(1), task(2), ended]
    assert after_end(gang, ended, ARRAY, ruled, max_failed=2) is expected


def waiting(index: int) -> ObservedProcess:
    return ObservedProcess("task", index, running=False)


@pytest.mark.parametrize(
    ("gang", "parallel", "names"),
    [
        ([waiting(0), waiting(1), waiting(2)], 2, ["task-0", "task-1"]),
        ([waiting(0), waiting(1)], None, ["task-0", "task-1"]),
        ([task(0), waiting(1), waiting(2)], 2, ["task-1"]),
        ([task(0), task(1), waiting(2)], 2, []),
        ([task(0, Reason.COMPLETED), task(1, BAD), waiting(2), waiting(3)], 1, ["task-2"]),
        ([task(0, BAD, restarting=True), waiting(1)], 1, []),
        ([], 3, []),
    ],
)
def test_the_next_starts_when_there_is_a_place(
    gang: list[ObservedProcess], parallel: int | None, names: list[str]
) -> None:
    assert next_to_start(gang, parallel) == names


def test_the_tasks_that_failed_are_named_at_the_end() -> None:
    good = [task(index, Reason.COMPLETED) for index in range(3)]
    assert completed_sentence(good) == "the job completed"
    failed = [task(index, BAD) for index in range(3, 20)]
    assert (
        completed_sentence([*good, failed[0]]) == "the job completed; 1 of 4 tasks failed: task-3"
    )
    assert completed_sentence([*good, *failed]).endswith("task-11, task-12, …")
    assert too_many_failed("task-3 exited with code 1", 0) == "task-3 exited with code 1"
    assert too_many_failed("x", 2) == "x; 3 tasks have failed, and max_failed is 2"
