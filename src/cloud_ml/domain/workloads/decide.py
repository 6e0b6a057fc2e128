"""The heart of the platform: what follows from one look at a job.

Reads top to bottom like the lifecycle. Pure and total: any record, any observation and any time
give a decision, and giving it twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cloud_ml.domain.observed import GangState, ObservedGang, ObservedProcess
from cloud_ml.domain.records import Decision, Event, EventType, Record
from cloud_ml.domain.workloads import restart
from cloud_ml.domain.workloads.actions import EnsureGang, Forget, StopGang, WorkloadAction
from cloud_ml.domain.workloads.end import finished_at
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.domain.workloads.reasons import WAITS, Reason
from cloud_ml.domain.workloads.spec import Desired, HasWorkload, WorkloadSpec

_NO_TRACE = "the engine has no trace of the attempt any more"

WorkloadRecord = Record[HasWorkload, WorkloadStatus]
WorkloadDecision = Decision[WorkloadStatus, WorkloadAction]


@dataclass(frozen=True)
class Rules:
    """What the operator has set about the life of jobs. Times in seconds."""

    stop_grace_s: float = 10.0
    start_timeout_s: float = 3600.0

    def grace_s(self, spec: WorkloadSpec) -> float:
        """The time that a job has between SIGTERM and SIGKILL."""
        return self.stop_grace_s if spec.grace_s is None else spec.grace_s


@dataclass(frozen=True)
class WaitsFor:
    """Why a queued job does not start although it is its turn: one of ``WAITS``, and a sentence."""

    reason: Reason
    message: str


def decide(
    job: WorkloadRecord,
    observed: Sequence[ObservedGang],
    now: datetime,
    *,
    has_slot: bool,
    rules: Rules,
    waits_for: WaitsFor | None = None,
) -> WorkloadDecision:
    """Decide the next step of a job.

    Args:
        job: The record as committed.
        observed: Every gang of the job that the engine knows, in any order.
        now: The time of the look.
        has_slot: Whether a queued job may start; ignored in every other phase.
        rules: The operator's limits.
        waits_for: What keeps a queued job from starting although it is its turn.
    """
    gangs = {gang.attempt: gang for gang in observed}
    status = job.status
    stray = next((g for g in observed if not g.state.over and g.attempt != status.attempt), None)
    if stray is not None:  # an earlier attempt still lives: nothing else happens until it is gone
        grace_s = rules.grace_s(job.spec.workload)
        return Decision(actions=[StopGang(stray.attempt, grace_s)], requeue_at=_soon(now, grace_s))
    gang = gangs.get(status.attempt)
    if status.phase.terminal:
        return _after_the_end(job, gang, rules, now)
    if (
        job.delete_requested_at
        or job.spec.workload.desired is Desired.STOPPED
        or status.phase is Phase.STOPPING
    ):
        return _stop(job, gang, now, rules)
    if status.phase is Phase.SAVED:
        return _saved(job, now)
    if status.phase is Phase.QUEUED:
        return _queued(status, now, has_slot, waits_for)
    if status.phase is Phase.RESTARTING:
        return _restarting(status, now)
    return _live(job, gang, now, rules)


def _after_the_end(
    job: WorkloadRecord, gang: ObservedGang | None, rules: Rules, now: datetime
) -> WorkloadDecision:
    if gang is not None and not gang.state.over:
        return Decision(
            actions=[StopGang(gang.attempt, 0.0)], requeue_at=_soon(now, rules.stop_grace_s)
        )
    return Decision(actions=[Forget()]) if job.delete_requested_at else Decision()


def _saved(job: WorkloadRecord, now: datetime) -> WorkloadDecision:
    if job.spec.workload.desired is not Desired.RUN:
        return Decision()
    return Decision(
        status=job.status.moved(Phase.QUEUED, queued_at=now, reason=Reason.SUBMITTED, message=""),
        events=[Event(now, Reason.SUBMITTED, "the saved job was started and is queued")],
    )


def _queued(
    status: WorkloadStatus, now: datetime, has_slot: bool, waits_for: WaitsFor | None
) -> WorkloadDecision:
    if not has_slot:  # the slot that becomes free wakes the queue
        return _waiting(status, now, waits_for)
    return Decision(
        status=status.moved(Phase.STARTING, starting_at=now, reason=Reason.STARTING, message=""),
        events=[Event(now, Reason.STARTING, f"attempt {status.attempt} is starting")],
    )


def _waiting(status: WorkloadStatus, now: datetime, waits_for: WaitsFor | None) -> WorkloadDecision:
    """Say once for each reason that a job waits; figures in the sentence are of the last look,
    which are few.
    """
    if waits_for is None:
        waited = status.reason in WAITS
        return (
            Decision(replace(status, reason=Reason.SUBMITTED, message="")) if waited else Decision()
        )
    reason, message = waits_for.reason, waits_for.message
    if (status.reason, status.message) == (reason, message):
        return Decision()
    said = [] if status.reason == reason else [Event(now, reason, message, EventType.WARNING)]
    return Decision(replace(status, reason=reason, message=message), events=said)


def _restarting(status: WorkloadStatus, now: datetime) -> WorkloadDecision:
    if status.not_before is not None and now < status.not_before:
        return Decision(requeue_at=status.not_before)
    return Decision(
        status=status.moved(
            Phase.STARTING, starting_at=now, reason=Reason.STARTING, message="", not_before=None
        ),
        events=[Event(now, Reason.STARTING, f"attempt {status.attempt} is starting")],
    )


def _stop(
    job: WorkloadRecord, gang: ObservedGang | None, now: datetime, rules: Rules
) -> WorkloadDecision:
    status = job.status
    reason = Reason.DELETED if job.delete_requested_at else Reason.CANCELLED
    word = "deleted" if job.delete_requested_at else "cancelled"
    grace_s = rules.grace_s(job.spec.workload)
    if status.phase in (Phase.SAVED, Phase.QUEUED):  # nothing was ever started
        return Decision(
            status=status.moved(
                Phase.STOPPED, finished_at=now, reason=reason, message=f"{word} before it started"
            ),
            events=[Event(now, reason, f"{word} before it started")],
        )
    if status.phase is not Phase.STOPPING:
        return Decision(
            status=status.moved(
                Phase.STOPPING, reason=Reason.STOPPING, message=f"{word}; waiting for the processes"
            ),
            events=[
                Event(now, Reason.STOPPING, f"{word}; its processes have {grace_s:g} s to end")
            ],
        )
    if (
        gang is None or not gang.state.over
    ):  # also before the claim: the tombstone keeps it from starting
        return Decision(actions=[StopGang(status.attempt, grace_s)], requeue_at=_soon(now, grace_s))
    ended = _with_findings(status.moved(Phase.STOPPED), gang)
    return Decision(
        status=replace(
            ended, finished_at=finished_at(job, ended, gang, now), reason=reason, message=word
        ),
        events=[*_unsaved(job, gang, now), Event(now, reason, f"{word}; every process is gone")],
    )


def _live(
    job: WorkloadRecord, gang: ObservedGang | None, now: datetime, rules: Rules
) -> WorkloadDecision:
    status = job.status
    if gang is None and status.phase is Phase.STARTING:
        return _nothing_made(status, now, rules)
    if (
        gang is None
    ):  # it ran, and the engine has lost every trace: never start the same attempt again
        gang = ObservedGang(
            job.key.uid, status.attempt, GangState.LOST, Reason.NODE_LOST, _NO_TRACE
        )
    if gang.state.over:
        return _ended(job, gang, now)
    if gang.state is GangState.STAGING:
        return _staging(status, gang, now, rules)
    phase = Phase.FINISHING if gang.state is GangState.FINISHING else Phase.RUNNING
    if phase is status.phase or status.phase is Phase.FINISHING:
        return Decision()
    started = min((p.started_at for p in gang.processes if p.started_at), default=now)
    moved = status.moved(
        phase, started_at=status.started_at or started, reason=Reason.STARTED, message=""
    )
    return Decision(
        status=_with_findings(moved, gang),
        events=[*_notices(gang, now), Event(now, Reason.STARTED, _started_sentence(gang))]
        if phase is Phase.RUNNING
        else [],
    )


def _nothing_made(status: WorkloadStatus, now: datetime, rules: Rules) -> WorkloadDecision:
    """Hand the attempt over; past the limit, put a tombstone in its place, so that it cannot
    start any more.
    """
    if now < _start_deadline(status, now, rules):
        return Decision(actions=[EnsureGang(status.attempt)], requeue_at=now + timedelta(seconds=5))
    return Decision(
        actions=[StopGang(status.attempt, 0.0)], requeue_at=_soon(now, rules.stop_grace_s)
    )


def _start_deadline(status: WorkloadStatus, now: datetime, rules: Rules) -> datetime:
    return (status.starting_at or now) + timedelta(seconds=rules.start_timeout_s)


def _staging(
    status: WorkloadStatus, gang: ObservedGang, now: datetime, rules: Rules
) -> WorkloadDecision:
    deadline = _start_deadline(status, now, rules)
    if now < deadline:
        return Decision(requeue_at=deadline)
    return Decision(
        actions=[StopGang(gang.attempt, 0.0)], requeue_at=_soon(now, rules.stop_grace_s)
    )


def _ended(job: WorkloadRecord, gang: ObservedGang, now: datetime) -> WorkloadDecision:
    status = job.status
    reason, message = _cause(status, gang)
    begun = _begun_unseen(status, gang)
    if gang.succeeded:
        ended = _with_findings(status.moved(Phase.SUCCEEDED, reason=reason, message=message), gang)
        ended = replace(ended, finished_at=finished_at(job, ended, gang, now))
        return Decision(
            status=ended,
            events=[
                *begun,
                *_unsaved(job, gang, now),
                Event(now, reason, message or "the job completed"),
            ],
        )
    if (
        not_before := restart.next_start(job.spec.workload, status.attempt, reason, now)
    ) is not None:
        attempt, most = status.attempt + 1, job.spec.workload.retry.max_retries + 1
        sentence = (
            f"{message}; attempt {attempt} of {most} in {(not_before - now).total_seconds():g} s"
        )
        again = replace(
            status.moved(Phase.RESTARTING, not_before=not_before, reason=reason, message=message),
            attempt=attempt,
            starting_at=None,
            started_at=None,
            exit_code=None,
            signal=None,
            stages={},
        )
        return Decision(
            status=again,
            events=[*begun, Event(now, Reason.RESTARTING, sentence, EventType.WARNING)],
        )
    ended = _with_findings(status.moved(Phase.FAILED, reason=reason, message=message), gang)
    ended = replace(ended, finished_at=finished_at(job, ended, gang, now))
    return Decision(
        status=ended,
        events=[*begun, *_unsaved(job, gang, now), Event(now, reason, message, EventType.WARNING)],
    )


def _begun_unseen(status: WorkloadStatus, gang: ObservedGang) -> list[Event]:
    """What there is to tell of an attempt that ran and ended between two looks: that it ran, and
    since when.
    """
    started = min(
        (process.started_at for process in gang.processes if process.started_at), default=None
    )
    if status.phase is not Phase.STARTING or started is None:
        return []
    return [
        *_notices(gang, started),
        Event(started, Reason.STARTED, _started_sentence(gang).replace(" is running", " ran")),
    ]


def _notices(gang: ObservedGang, at: datetime) -> list[Event]:
    """What to know about the code and its environment, said once for a job."""
    if gang.attempt > 1:
        return []
    return [Event(at, Reason.ENVIRONMENT_NOTICE, notice) for notice in gang.notices]


def _unsaved(job: WorkloadRecord, gang: ObservedGang, at: datetime) -> list[Event]:
    """What of the files of the last attempt is gone with it, if files were to be kept."""
    sentence = gang.unsaved_files.sentence if job.spec.workload.keeps_files else ""
    return [Event(at, Reason.FILES_NOT_KEPT, sentence, EventType.WARNING)] if sentence else []


def _cause(status: WorkloadStatus, gang: ObservedGang) -> tuple[Reason, str]:
    if gang.state is GangState.TOMBSTONED:
        return (
            Reason.START_TIMEOUT,
            f"attempt {status.attempt} could not be started within the start limit",
        )
    if (
        gang.reason is Reason.CANCELLED
    ):  # stopped, though the user asked for nothing: only the start limit does that
        return Reason.START_TIMEOUT, f"attempt {status.attempt} was not up within the start limit"
    reason = gang.reason or Reason.NODE_LOST
    return reason, gang.message or f"the attempt ended: {reason}"


def _with_findings(status: WorkloadStatus, gang: ObservedGang) -> WorkloadStatus:
    """The status with what the engine found out about the attempt."""
    decisive = _decisive(gang)
    return replace(
        status,
        started_at=status.started_at or (decisive.started_at if decisive else None),
        exit_code=decisive.exit_code if decisive else None,
        signal=decisive.signal if decisive else None,
        node=gang.node,
        runtime=gang.runtime,
        environment_lock=gang.environment_lock,
        trainer_digest=gang.trainer_digest,
        stages=dict(gang.stages),
        usage=decisive.usage if decisive else status.usage,
    )


def _decisive(gang: ObservedGang) -> ObservedProcess | None:
    """The process whose end explains the gang's: the first that failed, else the first of all."""
    failed = [p for p in gang.processes if p.reason not in (None, Reason.COMPLETED)]
    failed.sort(key=lambda p: (p.finished_at is None, p.finished_at))
    return next(iter(failed or gang.processes), None)


def _started_sentence(gang: ObservedGang) -> str:
    runtime = f" in {gang.runtime}" if gang.runtime else ""
    return f"attempt {gang.attempt} is running{runtime}" + (f" on {gang.node}" if gang.node else "")


def _soon(now: datetime, grace_s: float) -> datetime:
    return now + timedelta(seconds=max(1.0, grace_s / 4))
