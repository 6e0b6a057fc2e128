"""What the end of one process of a gang means for the others. Pure.

Engines differ in how they learn of an end. What follows from it is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from cloud_ml.domain.observed import ObservedProcess, TaskRestart
from cloud_ml.domain.workloads.checkpoints import NotedCheckpoint
from cloud_ml.domain.workloads.exits import ON_FAILURE, ExitAction, ExitRule, ExitRules, code_of
from cloud_ml.domain.workloads.progress import MOST_SAME_ENDS, Milestone
from cloud_ml.domain.workloads.reasons import PLACE_LOST, Reason

EVALUATOR = "evaluator"
"""The role that looks at results: how it ends decides nothing."""
_RESTARTED = frozenset({Reason.NON_ZERO_EXIT, Reason.SIGNALED, Reason.HUNG}) | PLACE_LOST
"""Ends after which a task may start again. One that had too little memory would need as much."""
_FREE = frozenset({Reason.CANCELLED}) | PLACE_LOST
"""Ends for which the task can do nothing: somebody wants it to start again, or it has lost its
place and the others have theirs.
"""
_QUICK_S = 60.0
_MOST_QUICK_STARTS = 3
_LONGEST_DELAY_S = 60.0
_EARLIER_RESTARTS, _LONGEST_END = 10, 300
_NAMED = 10
"""So many failed tasks are named in a sentence."""
ON_REQUEST = "ended on request, to start again"
"""What is said of a process that somebody wanted to start again."""
_END_OF_ALL = (ExitAction.RESTART_GANG, ExitAction.FREE)


class AfterEnd(StrEnum):
    """What follows when a process has ended."""

    GO_ON = "go on"
    RESTART_TASK = "restart the task"
    END_GANG = "end the gang"
    COMPLETE_GANG = "the gang is complete, although this process failed"


@dataclass(frozen=True)
class TaskRestarts:
    """Which tasks start again alone when they fail, and how often all of them together.

    Of the ``most`` restarts, earlier attempts have ``used`` some. ``exits`` says after which failures;
    a rule there holds for other tasks, too. A task that ran for ``healthy_s`` seconds with progress
    gives its restarts back.
    """

    tasks: tuple[str, ...] = ()
    most: int = 0
    used: int = field(default=0, kw_only=True)
    exits: ExitRules = ON_FAILURE
    healthy_s: float = 3600.0


NO_RESTARTS = TaskRestarts()


def after_end(
    processes: Sequence[ObservedProcess],
    ended: ObservedProcess,
    completes: Collection[str] = (),
    restarts: TaskRestarts = NO_RESTARTS,
    max_failed: int = 0,
) -> AfterEnd:
    """What follows from the end of this process.

    The gang is over when all that it waits for have ended, or when more processes than
    ``max_failed`` have failed that do not start again. An evaluator is neither waited for nor
    missed.

    Args:
        processes: All processes of the gang, the first one first.
        ended: One of them, with the reason of its end.
        completes: The names of those that the gang waits for; the first process if there are none.
        restarts: Who may start again. A task whose last starts all failed quickly, does not; nor
            one whose last ends were all the same, without progress in between.
        max_failed: How many of them may fail.
    """
    awaited = set(completes) or {processes[0].name}
    if ended.reason is not Reason.COMPLETED:
        if _has_budget(processes, ended, restarts) and _starts_again(ended, restarts):
            return AfterEnd.RESTART_TASK
        if ended.role == EVALUATOR and ended.name not in awaited:
            return AfterEnd.GO_ON
        others = [one for one in processes if one.failed and one.name != ended.name]
        if len(others) >= max_failed or _ends_all(ended, restarts):
            return AfterEnd.END_GANG
    left = awaited - {one.name for one in processes if _is_done(one)} - {ended.name}
    if left:
        return AfterEnd.GO_ON
    return AfterEnd.END_GANG if ended.reason is Reason.COMPLETED else AfterEnd.COMPLETE_GANG


def next_to_start(processes: Sequence[ObservedProcess], parallel: int | None) -> list[str]:
    """The names of the processes that have a place now, of those that have not started yet.

    Args:
        processes: All processes of the gang, in the order in which they start.
        parallel: How many may live at a time; ``None`` for all of them. One that starts again
            keeps its place.
    """
    waiting = [one.name for one in processes if one.waiting]
    if parallel is None:
        return waiting
    live = sum(one.running or one.restarting for one in processes)
    return waiting[: max(0, parallel - live)]


def completed_sentence(processes: Sequence[ObservedProcess]) -> str:
    """What is said of a gang that has completed."""
    failed = [one.name for one in processes if one.failed and one.role != EVALUATOR]
    if not failed:
        return "the job completed"
    names = ", ".join(failed[:_NAMED]) + (", …" if len(failed) > _NAMED else "")
    return f"the job completed; {len(failed)} of {len(processes)} tasks failed: {names}"


def too_many_failed(message: str, max_failed: int) -> str:
    """What is said of a gang that ended because of one failure more than it may have."""
    if not max_failed:
        return message
    return f"{message}; {max_failed + 1} tasks have failed, and max_failed is {max_failed}"


def explain_no_restart(
    processes: Sequence[ObservedProcess], ended: ObservedProcess, restarts: TaskRestarts
) -> ObservedProcess:
    """A failed process that does not start again, and says why not if it might have."""
    if not restarts.most or not may_start_again(ended, restarts):
        return ended
    if _count_used(processes, restarts) >= restarts.most:
        earlier = f", of which {restarts.used} in earlier attempts" if restarts.used else ""
        why = f"the restarts of tasks are used up (task_retries {restarts.most}{earlier})"
    elif quick_failures(ended) >= _MOST_QUICK_STARTS:
        why = f"{_MOST_QUICK_STARTS} starts in a row failed within {_QUICK_S:g} s"
    else:
        why = f"it ended {MOST_SAME_ENDS} times in the same way without a new checkpoint or step"
    return replace(ended, message=f"{ended.message}; it does not start again alone: {why}")


def restart_delay_s(ended: ObservedProcess) -> float:
    """How long a task waits before it starts again: not at all the first time, then longer."""
    restarts = ended.restarts - ended.free_restarts
    return min(_LONGEST_DELAY_S, 2.0 ** (restarts - 1)) if restarts > 0 else 0.0


def ended_on_request(task: ObservedProcess, now: datetime) -> ObservedProcess:
    """A process that was ended at ``now`` to start again. That is no failure of it."""
    return replace(
        task,
        running=False,
        reason=Reason.CANCELLED,
        message=ON_REQUEST,
        finished_at=now,
        restarting=True,
    )


def restart_process(
    ended: ObservedProcess, now: datetime, checkpoint: NotedCheckpoint | None = None
) -> ObservedProcess:
    """The process after its restart at ``now``, from a checkpoint if there is one."""
    return ObservedProcess(
        ended.role,
        ended.index,
        running=True,
        started_at=now,
        restarts=ended.restarts + 1,
        last_end=ended.message,
        last_reason=ended.reason,
        last_exit_code=ended.exit_code,
        last_signal=ended.signal,
        quick_failures=_failures_to_carry(ended),
        same_ends=ended.same_ends,
        last_ran_s=ran_s(ended),
        restored_from=checkpoint,
        requested_restarts=ended.requested_restarts,
        free_restarts=ended.free_restarts + int(_is_free(ended)),
        node=ended.node,
        earlier_restarts=_earlier_restarts(ended),
    )


def _earlier_restarts(ended: ObservedProcess) -> tuple[TaskRestart, ...]:
    """The last restarts of a process, for those who have not looked since. A report has them for
    each task, so they are few and short.
    """
    if not ended.restarts:
        return ()
    why = ended.last_end[:_LONGEST_END]
    last = TaskRestart(ended.restarts, why, ended.last_ran_s, ended.restored_from)
    return (*ended.earlier_restarts, last)[-_EARLIER_RESTARTS:]


def _failures_to_carry(ended: ObservedProcess) -> int:
    return ended.quick_failures if _is_free(ended) else quick_failures(ended)


def with_end(
    ended: ObservedProcess, milestone: Milestone, healthy_s: float = TaskRestarts.healthy_s
) -> ObservedProcess:
    """A process that has ended, with this end counted; its gang has come as far as ``milestone``.
    The loss of its place says nothing of the process.

    After ``healthy_s`` seconds with progress, its restarts so far cost no budget any more.
    """
    if ended.reason in PLACE_LOST:
        return ended
    code = code_of(ended.reason, ended.exit_code, ended.signal)
    healthy = (ran_s(ended) or 0.0) >= healthy_s and milestone.is_beyond(ended.same_ends.milestone)
    same = ended.same_ends.followed_by(ended.role, ended.reason or "", code, milestone)
    free = ended.restarts if healthy else ended.free_restarts
    return replace(ended, same_ends=same, free_restarts=free)


def quick_failures(ended: ObservedProcess) -> int:
    """How many starts of the task have failed quickly, one after the other, with this one."""
    seconds = ran_s(ended)
    return ended.quick_failures + 1 if seconds is not None and seconds < _QUICK_S else 0


def ran_s(ended: ObservedProcess) -> float | None:
    """How long a process ran that has ended; ``None`` if that is not known."""
    if ended.started_at is None or ended.finished_at is None:
        return None
    return max(0.0, (ended.finished_at - ended.started_at).total_seconds())


def _rule_for(ended: ObservedProcess, restarts: TaskRestarts) -> ExitRule | None:
    """The user's rule for an end."""
    code = code_of(ended.reason, ended.exit_code, ended.signal)
    found = ended.found_texts, ended.found_patterns
    return restarts.exits.rule_for(ended.role, ended.reason, code, *found)


def may_start_again(ended: ObservedProcess, restarts: TaskRestarts) -> bool:
    """Whether a task may start again alone after such an end, however often it has."""
    if rule := _rule_for(ended, restarts):
        return rule.action is ExitAction.RESTART_TASK
    code = code_of(ended.reason, ended.exit_code, ended.signal)
    able = ended.name in restarts.tasks and ended.reason in _RESTARTED
    return able and restarts.exits.restarts_after(ended.reason, code)


def _is_done(process: ObservedProcess) -> bool:
    return process.reason is Reason.COMPLETED or process.failed


def _ends_all(ended: ObservedProcess, restarts: TaskRestarts) -> bool:
    """Whether a rule of the user's starts all tasks again after this end."""
    rule = _rule_for(ended, restarts)
    return rule is not None and rule.action in _END_OF_ALL


def count_restarts(processes: Sequence[ObservedProcess]) -> int:
    """How much of the budget of restarts these processes have used."""
    return sum(one.restarts - one.free_restarts for one in processes)


def _count_used(processes: Sequence[ObservedProcess], restarts: TaskRestarts) -> int:
    """How much of the budget is used, in earlier attempts, and by failed tasks that start again
    soon, too.
    """
    return (
        restarts.used
        + count_restarts(processes)
        + sum(one.restarting and not _is_free(one) for one in processes)
    )


def _is_free(ended: ObservedProcess) -> bool:
    """Whether a restart after this end costs nothing of the budget."""
    return ended.reason in _FREE


def _has_budget(
    processes: Sequence[ObservedProcess], ended: ObservedProcess, restarts: TaskRestarts
) -> bool:
    """Whether one more restart is left. Where tasks never start again alone, none is free."""
    if _is_free(ended):
        return restarts.most > 0
    return _count_used(processes, restarts) < restarts.most


def _starts_again(ended: ObservedProcess, restarts: TaskRestarts) -> bool:
    # Losing its place is not the task's fault, so quick failures and repeated ends do not prevent
    # a restart.
    if ended.reason in PLACE_LOST:
        return may_start_again(ended, restarts)
    if quick_failures(ended) >= _MOST_QUICK_STARTS or not may_start_again(ended, restarts):
        return False
    # A user's rule takes precedence over our guess that another restart is useless.
    ruled = _rule_for(ended, restarts) is not None
    return ruled or ended.same_ends.times < MOST_SAME_ENDS
