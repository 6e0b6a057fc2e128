"""Before an attempt begins: jobs that are saved, paused, queued, or about to start again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from cloud_ml.domain.records import Decision, Event, EventType
from cloud_ml.domain.workloads import resizing
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.domain.workloads.reasons import WAITS, Reason
from cloud_ml.domain.workloads.record import WorkloadDecision, WorkloadRecord
from cloud_ml.domain.workloads.spec import Desired
from cloud_ml.domain.workloads.worlds import World


@dataclass(frozen=True)
class WaitsFor:
    """Why a queued job does not start although it is its turn: one of ``WAITS``, and a sentence."""

    reason: Reason
    message: str


def at_rest(job: WorkloadRecord, now: datetime) -> WorkloadDecision:
    """Saved or paused: until somebody wants it to run."""
    if job.spec.workload.desired is not Desired.RUN:
        return Decision()
    saved = job.status.phase is Phase.SAVED
    word = "the saved job was started" if saved else "the paused job was resumed"
    queued = job.status.moved(Phase.QUEUED, queued_at=now, reason=Reason.SUBMITTED, message="")
    return Decision(
        status=replace(queued, recoveries=queued.recoveries.resumed(now)),
        events=[Event(now, Reason.SUBMITTED, f"{word} and is queued")],
    )


def queue_for_memory(job: WorkloadRecord, now: datetime) -> WorkloadDecision:
    """Give up the place: two jobs that each wait for more memory, and keep what they have, might
    wait for each other for ever.
    """
    queued = job.status.moved(
        Phase.QUEUED, queued_at=now, reason=Reason.SUBMITTED, message="", not_before=None, ports=()
    )
    message = f"attempt {job.status.attempt} needs more memory, and is queued until it is free"
    return Decision(status=queued, events=[Event(now, Reason.SUBMITTED, message)])


def wait_in_queue(
    status: WorkloadStatus, now: datetime, waits_for: WaitsFor | None
) -> WorkloadDecision:
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
    events = [] if status.reason == reason else [Event(now, reason, message, EventType.WARNING)]
    return Decision(replace(status, reason=reason, message=message), events=events)


def starts_again(job: WorkloadRecord, now: datetime) -> bool:
    """Whether the next attempt of a job that restarts is due, or somebody has asked for it."""
    status = job.status
    due = status.not_before is None or now >= status.not_before
    requested = job.spec.workload.restart_after == status.attempt - 1
    waits = status.phase is Phase.RESTARTING and job.spec.workload.desired is not Desired.PAUSED
    return waits and not job.delete_requested_at and (due or requested)


def begin_attempt(
    job: WorkloadRecord, now: datetime, ports: tuple[int, ...], world: World
) -> WorkloadDecision:
    """The attempt begins, with a place."""
    status = job.status
    moved = status.moved(
        Phase.STARTING,
        starting_at=now,
        reason=Reason.STARTING,
        message="",
        not_before=None,
        ports=ports,
    )
    with_tasks = resizing.with_tasks(job.spec.workload, world)
    event = Event(now, Reason.STARTING, f"attempt {status.attempt} is starting{with_tasks}")
    return Decision(
        status=resizing.with_world(moved, world, now),
        events=[*resizing.changes(status, world, now), event],
    )
