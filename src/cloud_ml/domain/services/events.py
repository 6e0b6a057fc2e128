"""What is told of a change of a service's status. Pure."""

from __future__ import annotations

from datetime import datetime

from cloud_ml.domain.records import Event, EventType
from cloud_ml.domain.services.kind import ServiceRecord
from cloud_ml.domain.services.scale import candidates_of, replicas_of
from cloud_ml.domain.services.status import (
    CandidateStatus,
    SeenReplica,
    ServicePhase,
    ServiceStatus,
)
from cloud_ml.domain.workloads.reasons import Reason


def events_of_change(
    service: ServiceRecord, before: ServiceStatus, moved: ServiceStatus, now: datetime
) -> list[Event]:
    """What there is to tell of a change of phase, of a release that failed, and of the
    candidate.
    """
    return [
        *_events_of_failure(service, before, moved, now),
        *_events_of_service(service, before, moved, now),
        *_events_of_candidate(service, before.candidate, moved, now),
    ]


def _events_of_failure(
    service: ServiceRecord, before: ServiceStatus, moved: ServiceStatus, now: datetime
) -> list[Event]:
    """That an update failed while the service goes on with an earlier release."""
    failure = moved.failure_of(service.spec.template)
    if (
        failure is None
        or moved.phase is ServicePhase.FAILED
        or before.failure_of(failure.release) is not None
    ):
        return []
    sentence = f"release {failure.release} cannot be served: {failure.message}; calls go to the release before it"
    return [Event(now, "UpdateFailed", sentence, EventType.WARNING)]


def _events_of_candidate(
    service: ServiceRecord, before: CandidateStatus | None, moved: ServiceStatus, now: datetime
) -> list[Event]:
    found, candidate = moved.candidate, service.spec.candidate
    if found is None or candidate is None:
        return []
    if before is not None and (before.template, before.phase) == (found.template, found.phase):
        return []
    bad = found.phase in (ServicePhase.FAILED, ServicePhase.DEGRADED)
    words = {
        ServicePhase.RUNNING: f"answers: {candidate.share} % of calls go to it",
        ServicePhase.STARTING: "is being started; calls go to what is served",
        ServicePhase.STOPPED: "is stopped with the service",
        ServicePhase.FAILED: f"cannot be started; calls go to what is served: {found.message}",
    }
    sentence = (
        words.get(found.phase)
        or f"has {found.ready} of {candidates_of(service.spec, moved)} replicas that answer"
    )
    kind = EventType.WARNING if bad else EventType.NORMAL
    return [Event(now, f"Candidate{found.phase}", f"release {found.template} {sentence}", kind)]


def _events_of_service(
    service: ServiceRecord, before: ServiceStatus, moved: ServiceStatus, now: datetime
) -> list[Event]:
    if moved.phase is before.phase:
        return []
    bad = moved.phase in (ServicePhase.FAILED, ServicePhase.DEGRADED)
    words = {
        ServicePhase.RUNNING: f"{moved.ready} of {replicas_of(service.spec, moved)} replicas "
        "answer",
        ServicePhase.STARTING: "replicas are being started",
        ServicePhase.STOPPED: "every replica is gone",
    }
    sentence = words.get(moved.phase) or moved.message or f"the service is {moved.phase}"
    return [Event(now, str(moved.phase), sentence, EventType.WARNING if bad else EventType.NORMAL)]


def events_of_place(
    service: ServiceRecord, moved: ServiceStatus, blocked: SeenReplica, now: datetime
) -> list[Event]:
    """That an old replica goes before its successor answers, if one does."""
    left = {desired.number for desired in moved.wishes}
    gone = [desired.number for desired in service.status.wishes if desired.number not in left]
    if not gone:
        return []
    count = replicas_of(service.spec, moved)
    sentence = (
        f"replica {gone[0]} is replaced in place by replica {blocked.number}, since there is no "
        f"room for one more: at most {count - 1} of {count} answer meanwhile ({blocked.message})"
    )
    return [Event(now, Reason.REPLACED_IN_PLACE, sentence, EventType.WARNING)]
