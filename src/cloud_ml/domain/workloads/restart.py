"""Whether an attempt that ended is followed by another, and when. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cloud_ml.domain.workloads.exits import EXITS, ExitAction, ExitRule, RestartPolicy
from cloud_ml.domain.workloads.memory_growth import MoreMemory, most_reached
from cloud_ml.domain.workloads.phases import WorkloadStatus
from cloud_ml.domain.workloads.progress import (
    MOST_SAME_ENDS,
    NO_END,
    NOTHING_REACHED,
    Milestone,
    RepeatedEnd,
)
from cloud_ml.domain.workloads.reasons import NEVER_RETRIED, Reason
from cloud_ml.domain.workloads.spec import RetryPolicy, WorkloadSpec

_FREE = frozenset({Reason.NODE_LOST, Reason.SUPERVISOR_LOST})
"""Ends for which the workload can do nothing."""
_FREE_WORDS = "it costs no retry"
_MOST_FREE = 10
"""So many failures in a row may cost nothing; those after them cost a retry each."""
_SETTLED_S = 60.0
"""A good end after less counts as one more in a row, so that the delay grows."""
_COUNTED = EXITS | {Reason.DISK_QUOTA}
"""Ends of the program itself, of which the third without progress is the last."""
_HOPELESS = frozenset({Reason.OUT_OF_MEMORY, Reason.TIME_LIMIT, Reason.PREPARE_FAILED})


@dataclass(frozen=True)
class AttemptEnd:
    """How an attempt ended: the reason, and of the process that decided it the role and the exit
    code as a shell says it. It ran for ``ran_s`` seconds, and came as far as ``milestone``. Its output
    has the texts ``found_texts`` of rules, and matches of their patterns ``found_patterns``. Single
    tasks have used ``task_restarts`` of their budget in it.
    """

    reason: Reason
    role: str = ""
    code: int | None = None
    ran_s: float = 0.0
    milestone: Milestone = NOTHING_REACHED
    found_texts: tuple[str, ...] = ()
    found_patterns: tuple[str, ...] = ()
    task_restarts: int = 0


@dataclass(frozen=True)
class NextAttempt:
    """When the next attempt starts; ``None`` when there will be none.

    ``retries_used``, ``task_restarts_used``, ``failures``, ``last_end`` and ``port_conflicts`` are
    what the status has then. ``why`` explains it in a few words and may be empty. With
    ``no_progress``, that is the reason why none follows.
    """

    at: datetime | None
    retries_used: int = 0
    failures: int = 0
    why: str = ""
    last_end: RepeatedEnd = NO_END
    no_progress: bool = False
    port_conflicts: int = 0
    task_restarts_used: int = 0


def next_attempt(
    workload: WorkloadSpec,
    status: WorkloadStatus,
    end: AttemptEnd,
    now: datetime,
    more: MoreMemory | None = None,
) -> NextAttempt:
    """What follows from the end of an attempt.

    Failures that would only repeat (a package that does not install) end the job at once. So does
    the third end of the same kind without progress in between, unless a rule of the user's is for
    it; ends that are not the program's own neither count nor reset that. After ``healthy_s``
    seconds of running, the delay is the first one again; with progress, the budgets of retries and
    of restarts of tasks are whole again, too. They also are after a good end, however short.

    With ``more`` memory than the attempt had, the next one meets another situation: an end for lack
    of memory is followed whatever the policy is, and is not the same as the one before.
    """
    counted = _count_attempt(workload, status, end)
    following = _follow(workload, counted, end, now, more)
    return replace(following, task_restarts_used=counted.task_restarts_used)


def _count_attempt(
    workload: WorkloadSpec, status: WorkloadStatus, end: AttemptEnd
) -> WorkloadStatus:
    """The status with what the attempt has used of the budgets, or has given back."""
    healthy = end.ran_s >= workload.retry.healthy_s
    # The progress of a service is the time that it has answered.
    progressed = workload.serves or end.milestone.is_beyond(status.last_end.milestone)
    # With Always, a good end is the end of a round: what failed in it is no burden on the next.
    whole_again = end.reason is Reason.COMPLETED or (healthy and progressed)
    return replace(
        status,
        retries_used=0 if whole_again else status.retries_used,
        failures=0 if healthy else status.failures,
        task_restarts_used=0 if whole_again else status.task_restarts_used + end.task_restarts,
    )


def _follow(
    workload: WorkloadSpec,
    status: WorkloadStatus,
    end: AttemptEnd,
    now: datetime,
    more: MoreMemory | None,
) -> NextAttempt:
    policy, used, failures = workload.retry, status.retries_used, status.failures
    if end.reason is Reason.COMPLETED:
        return _after_success(workload, end, now, used, failures)
    if end.reason is Reason.PREEMPTED:  # the engine lets it wait for a place as long as it takes
        again = _after(policy, now, used, 1, status.last_end)
        return replace(again, failures=failures, why=_FREE_WORDS)
    conflicts = status.port_conflicts + 1 if end.reason is Reason.PORT_TAKEN else 0
    if 0 < conflicts <= _MOST_FREE:  # with delays of their own: a failure later on has its own, too
        again = _after(policy, now, used, conflicts, status.last_end)
        return replace(again, failures=failures, port_conflicts=conflicts, why=_FREE_WORDS)
    # The user's rules come before what the platform would do by itself.
    found = end.found_texts, end.found_patterns
    rule = policy.exits.rule_for(end.role, end.reason, end.code, *found)
    if not _may_repeat(workload, end, rule, more):
        return NextAttempt(None, why=_why_final(workload, end, rule))
    if more is not None and more.refusal:
        return NextAttempt(None, why=more.refusal)
    last = status.last_end
    if _is_free(policy, end, rule, failures):
        return replace(_after(policy, now, used, failures + 1, last), why=_FREE_WORDS)
    if used >= policy.max_retries:
        all_used = f"all {used} retries are used" if used else ""
        return NextAttempt(None, why=all_used)
    # Repeated equal ends count only if no user's rule asks for another attempt and it gets no
    # more memory.
    if rule is None and more is None and _counts_as_repeated(workload, end.reason):
        last = last.followed_by(end.role, end.reason, end.code, end.milestone)
        if last.times >= MOST_SAME_ENDS:
            why = f"{used} of {policy.max_retries} retries were used"
            return NextAttempt(None, why=why, no_progress=True)
    why = f"retry {used + 1} of {policy.max_retries}"
    again = _after(policy, now, used + 1, failures + 1, last)
    return replace(again, why=why, port_conflicts=conflicts)


def _after_success(
    workload: WorkloadSpec, end: AttemptEnd, now: datetime, used: int, failures: int
) -> NextAttempt:
    """A workload that is over runs again only if its restart policy is Always."""
    policy = workload.retry
    if policy.exits.policy is not RestartPolicy.ALWAYS or workload.serves:
        return NextAttempt(None)
    in_a_row = 1 if end.ran_s >= _SETTLED_S else failures + 1
    again = _after(policy, now, used, in_a_row, NO_END)
    return replace(again, why="the restart policy is Always")


def _is_free(policy: RetryPolicy, end: AttemptEnd, rule: ExitRule | None, failures: int) -> bool:
    """Whether the next attempt costs no retry."""
    if rule is not None and rule.action is ExitAction.FREE:
        return True
    # Without retries, there is no second attempt, whatever ended the first one.
    return end.reason in _FREE and policy.max_retries > 0 and failures < _MOST_FREE


def _counts_as_repeated(workload: WorkloadSpec, reason: Reason) -> bool:
    """Whether equal ends of this kind tell that the workload does not get further. Those of a
    service depend on the calls that it gets.
    """
    return reason in _COUNTED and not workload.serves


def _why_final(workload: WorkloadSpec, end: AttemptEnd, rule: ExitRule | None) -> str:
    """Why no attempt follows, in a few words that may be empty."""
    if rule is not None:
        return f"restart.rules: {rule}"
    return most_reached(workload) if end.reason is Reason.OUT_OF_MEMORY else ""


def _may_repeat(
    workload: WorkloadSpec, end: AttemptEnd, rule: ExitRule | None, more: MoreMemory | None
) -> bool:
    if rule is None and more is not None:
        return True
    if workload.is_array and end.reason in EXITS:  # its tasks start again alone, and they have
        return rule is not None and rule.action in (ExitAction.RESTART_GANG, ExitAction.FREE)
    if rule is not None:
        return rule.action is not ExitAction.FAIL
    return workload.retry.exits.restarts_after(end.reason, end.code) and not _would_repeat(
        workload, end.reason
    )


def _would_repeat(workload: WorkloadSpec, reason: Reason) -> bool:
    """Whether another attempt would only meet the cause again.

    A program computes the same and needs the same memory and time again. What a service needs
    depends on the calls that it gets.
    """
    return reason in NEVER_RETRIED or (reason in _HOPELESS and not workload.serves)


def _after(
    policy: RetryPolicy, now: datetime, used: int, failures: int, last_end: RepeatedEnd
) -> NextAttempt:
    at = now + timedelta(seconds=policy.delay_s(failures))
    return NextAttempt(at, used, failures, last_end=last_end)
