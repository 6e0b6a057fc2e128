"""What follows when an attempt has ended: the end of the job, or another attempt."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from cloud_ml.domain.observed import GangState, ObservedGang
from cloud_ml.domain.records import Decision, Event, EventType
from cloud_ml.domain.workloads import attempt_events, failover, failover_sentences, restart
from cloud_ml.domain.workloads.end import finished_at
from cloud_ml.domain.workloads.exits import code_of
from cloud_ml.domain.workloads.findings import decisive_process, task_statuses, with_findings
from cloud_ml.domain.workloads.gangs import count_restarts
from cloud_ml.domain.workloads.memory_growth import MoreMemory
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.domain.workloads.progress import MOST_SAME_ENDS
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.domain.workloads.record import WorkloadDecision, WorkloadRecord
from cloud_ml.domain.workloads.spec import WorkloadSpec

_NO_PROGRESS = f"NoProgress: the same end {MOST_SAME_ENDS} times without a new checkpoint or step"


def after_attempt(
    job: WorkloadRecord, gang: ObservedGang, now: datetime, more: MoreMemory | None = None
) -> WorkloadDecision:
    """End the job as its attempt has ended, or have another attempt follow, which may have ``more``
    memory.
    """
    status = job.status
    reason, message = _cause(status, gang)
    begun = attempt_events.beginning(status, gang, now)
    following = restart.next_attempt(
        job.spec.workload, status, _end_of(status, gang, reason, now), now, more
    )
    if following.at is not None:
        return _schedule_attempt(job, gang, following, now, more)
    if following.no_progress:
        reason, message = Reason.NO_PROGRESS, f"{_NO_PROGRESS}: {message}"
    if gang.succeeded:
        ended = with_findings(status.moved(Phase.SUCCEEDED, reason=reason, message=message), gang)
        ended = replace(ended, finished_at=finished_at(job, ended, gang, now))
        return Decision(
            status=ended,
            events=[
                *begun,
                *attempt_events.unsaved_files(job, gang, now),
                Event(now, reason, message or "the job completed"),
            ],
        )
    full_message = f"{message} ({following.why})" if following.why else message
    if reason is Reason.OUT_OF_MEMORY and job.spec.workload.retry.memory_growth is not None:
        message = full_message  # why it gets no more, although it asked for that
    ended = with_findings(status.moved(Phase.FAILED, reason=reason, message=message), gang)
    ended = replace(ended, finished_at=finished_at(job, ended, gang, now))
    return Decision(
        status=ended,
        events=[
            *begun,
            *attempt_events.unsaved_files(job, gang, now),
            Event(now, reason, full_message, EventType.WARNING),
        ],
    )


def _schedule_attempt(
    job: WorkloadRecord,
    gang: ObservedGang,
    following: restart.NextAttempt,
    now: datetime,
    more: MoreMemory | None,
) -> WorkloadDecision:
    """Another attempt is due at ``following.at``."""
    status = job.status
    reason, message = _cause(status, gang)
    begun = attempt_events.beginning(status, gang, now)
    assert following.at is not None
    attempt, delay_s = status.attempt + 1, (following.at - now).total_seconds()
    sentence = (
        f"{message or 'the job completed'}; attempt {attempt} in {delay_s:g} s ({following.why})"
        f"{'' if more is None else f' with more memory: {more.sentence}'}"
        f"{about_attempt(status, gang, now)}"
    )
    again = of_next_attempt(
        status.moved(
            Phase.RESTARTING,
            not_before=following.at,
            reason=reason,
            message=message,
            retries_used=following.retries_used,
            task_restarts_used=following.task_restarts_used,
            failures=following.failures,
            last_end=following.last_end,
            port_conflicts=following.port_conflicts,
            recoveries=failover.with_failure(
                job.spec.workload, status, gang, decisive_process(gang), now
            ),
            # After a completed attempt, all tasks run again. After a failed one, an array
            # continues with the tasks that are left.
            tasks=() if gang.succeeded else task_statuses(status, gang),
            memory=status.memory if more is None else dict(more.limits),
        ),
        job.spec.workload,
    )
    type_ = EventType.NORMAL if reason is Reason.COMPLETED else EventType.WARNING
    return Decision(status=again, events=[*begun, Event(now, Reason.RESTARTING, sentence, type_)])


def _end_of(
    status: WorkloadStatus, gang: ObservedGang, reason: Reason, now: datetime
) -> restart.AttemptEnd:
    """The end of an attempt, as the rules of restarts look at it."""
    decisive = decisive_process(gang)
    if decisive is None:
        return restart.AttemptEnd(reason, milestone=gang.milestone)
    ran_s = _ran_s(status, gang, now) or 0.0
    code = code_of(reason, decisive.exit_code, decisive.signal)
    return restart.AttemptEnd(
        reason,
        decisive.role,
        code,
        ran_s,
        gang.milestone,
        found_texts=decisive.found_texts,
        found_patterns=decisive.found_patterns,
        task_restarts=count_restarts(gang.processes),
    )


def _ran_s(status: WorkloadStatus, gang: ObservedGang, now: datetime) -> float | None:
    """How long an attempt ran until the end that decided; ``None`` if it never ran."""
    if gang.prepared_only:
        return None
    decisive = decisive_process(gang)
    started = status.started_at or (decisive.started_at if decisive else None)
    if started is None:
        return None
    ended = (decisive.finished_at if decisive else None) or now
    return max(0.0, (ended - started).total_seconds())


def about_attempt(status: WorkloadStatus, gang: ObservedGang, now: datetime) -> str:
    """What else there is to tell of an attempt that another one follows."""
    details = failover_sentences.attempt_end(gang, _ran_s(status, gang, now))
    return f"; {details}" if details else ""


def _cause(status: WorkloadStatus, gang: ObservedGang) -> tuple[Reason, str]:
    if gang.state is GangState.TOMBSTONED:
        return (
            Reason.START_TIMEOUT,
            f"attempt {status.attempt} could not be started within the start limit",
        )
    # The attempt was stopped without a request by the user. Only the start limit does that.
    if gang.reason is Reason.CANCELLED:
        return Reason.START_TIMEOUT, f"attempt {status.attempt} was not up within the start limit"
    reason = gang.reason or Reason.NODE_LOST
    message = gang.message or f"the attempt ended: {reason}"
    if (
        reason is Reason.OUT_OF_MEMORY
        and len(gang.processes) > 1
        and (one := decisive_process(gang))
    ):
        message = f"{one.name}: {message}"  # the limit is each task's own
    return reason, message


def of_next_attempt(status: WorkloadStatus, workload: WorkloadSpec) -> WorkloadStatus:
    """Without what is known of the attempt that is over, but for tasks of an array that have
    completed: those are done.
    """
    done = (one for one in status.tasks if one.reason == Reason.COMPLETED)
    return replace(
        status,
        attempt=status.attempt + 1,
        starting_at=None,
        started_at=None,
        exit_code=None,
        signal=None,
        stages={},
        tasks=tuple(done) if workload.is_array else (),
    )
