"""What follows from one look at a model service and its replicas.

Pure and total, like the decision about a job. A change of template is rolled out one replica at a
time: a new one is added, and once it answers an old one goes, so that as many answer at any time as
before. Where the quota has no room for one more, an old one goes first, after a short wait, and an
event says so. A candidate stands beside the stable release and changes nothing about how the
service stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from cloud_ml.domain.records import Decision, Event
from cloud_ml.domain.services.desired_replicas import blocked_by_room, plan_replicas, stable_numbers
from cloud_ml.domain.services.events import events_of_change, events_of_place
from cloud_ml.domain.services.failures import answered_releases, failed_releases, served_release
from cloud_ml.domain.services.kind import ServiceRecord
from cloud_ml.domain.services.scale import candidates_of, replicas_of
from cloud_ml.domain.services.status import (
    CandidateStatus,
    DesiredReplica,
    SeenReplica,
    ServicePhase,
    ServiceStatus,
)
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.domain.workloads.spec import Desired

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class MakeReplica:
    """Make the record of a desired replica unless it is there."""

    desired: DesiredReplica


@dataclass(frozen=True)
class StopReplica:
    """Ask for the end of a replica that is desired no more. What it said stays."""

    uid: str


@dataclass(frozen=True)
class DropReplica:
    """Remove a replica that has ended, with its log."""

    uid: str


@dataclass(frozen=True)
class ForgetService:
    """Remove the record: every replica is gone."""


ServiceAction = MakeReplica | StopReplica | DropReplica | ForgetService


ServiceDecision = Decision[ServiceStatus, ServiceAction]
"""What follows from one look at a service."""


def decide(
    service: ServiceRecord,
    replicas: Sequence[SeenReplica],
    now: datetime,
    *,
    keep_ended: int = 0,
    quota_wait_s: float = 0.0,
    load_tries: int = 3,
    no_port: str = "",
) -> ServiceDecision:
    """Decide the next step of a service.

    Args:
        service: The record as committed.
        replicas: Every replica that carries its label.
        now: The time of the look.
        keep_ended: How many replicas that have ended are kept for what they said, the latest.
        quota_wait_s: How long a roll-out waits for room in the quota, or on the machine, before it
            replaces in place.
        load_tries: How often a replica that crashes is started before its release has failed.
        no_port: Why callers cannot reach the service, as it has no port; empty if it has one.
    """
    committed = service.status
    service = _judge_releases(service, replicas, load_tries)
    alive = [replica for replica in replicas if not replica.ended]
    wait = _wait_for_room(service, alive, now, quota_wait_s)
    moved = _next_status(service, replicas, alive, wait, no_port)
    # Commit before acting: a replica is created only after its number is stored, so a crash in
    # between cannot create it twice.
    if moved != committed:
        events: list[Event] = []
        if wait.blocked is not None and wait.in_place:
            events += events_of_place(service, moved, wait.blocked, now)
        events += events_of_change(service, committed, moved, now)
        return Decision(status=moved, events=events)
    ended = [replica for replica in replicas if replica.ended]
    found = _act(service, alive, ended, now, keep_ended)
    if wait.over_at is None:
        return found
    return replace(found, requeue_at=_earlier(found.requeue_at, wait.over_at))


@dataclass(frozen=True)
class _RoomWait:
    """How long a roll-out has waited for room for one more replica."""

    blocked: SeenReplica | None
    since: datetime | None
    over_at: datetime | None
    in_place: bool
    """An old replica goes first now: the wait was committed before, and it is over."""


def _wait_for_room(
    service: ServiceRecord, alive: Sequence[SeenReplica], now: datetime, quota_wait_s: float
) -> _RoomWait:
    status = service.status
    blocked = None
    if service.delete_requested_at is None:
        blocked = blocked_by_room(service.spec, status, alive)
    if blocked is None:
        return _RoomWait(None, None, None, in_place=False)
    since = status.blocked_since or now
    over_at = since + timedelta(seconds=quota_wait_s)
    in_place = status.blocked_since is not None and over_at <= now
    return _RoomWait(blocked, since, over_at, in_place)


def _next_status(
    service: ServiceRecord,
    replicas: Sequence[SeenReplica],
    alive: Sequence[SeenReplica],
    wait: _RoomWait,
    no_port: str,
) -> ServiceStatus:
    """The status that this look leads to; ``replicas`` are also those that have ended."""
    status, deleting = service.status, service.delete_requested_at is not None
    plan = plan_replicas(service.spec, status, replicas, deleting=deleting, in_place=wait.in_place)
    stable = stable_numbers(plan)
    serving = [replica for replica in alive if replica.number in stable]
    phase, reason, message = _stands(service, alive, serving, no_port)
    return replace(
        status, phase=phase, reason=reason, message=message, wishes=plan,
        next=max([status.next, *(desired.number + 1 for desired in plan)]),
        ready=sum(replica.ready for replica in serving),
        serving_template=_find_served(service, serving),
        leaving=len({each.number for each in alive} - {desired.number for desired in plan}),
        candidate=_candidate(service, [each for each in alive if each.number not in stable]),
        blocked_since=None if wait.in_place else wait.since,
        answering=tuple(sorted(each.number for each in alive if each.ready)),
        given_up=tuple(sorted(each.number for each in serving if each.hopeless and not each.ready)),
    )  # fmt: skip


def _judge_releases(
    service: ServiceRecord, replicas: Sequence[SeenReplica], tries: int
) -> ServiceRecord:
    """The service with what follows from this look about which of its releases have answered and
    which failed.
    """
    spec, status, deleting = service.spec, service.status, service.delete_requested_at is not None
    answered = answered_releases(spec, status, replicas, deleting=deleting)
    failed = failed_releases(spec, status, replicas, answered, tries=tries, deleting=deleting)
    return replace(service, status=replace(status, answered=answered, failed=failed))


def _earlier(one: datetime | None, other: datetime) -> datetime:
    return other if one is None else min(one, other)


def _act(
    service: ServiceRecord,
    replicas: Sequence[SeenReplica],
    ended: Sequence[SeenReplica],
    now: datetime,
    keep_ended: int,
) -> ServiceDecision:
    status, deleting = service.status, service.delete_requested_at is not None
    desired_numbers = {desired.number for desired in status.wishes}
    there = {replica.number for replica in replicas}
    actions: list[ServiceAction] = [
        MakeReplica(desired) for desired in status.wishes if desired.number not in there
    ]
    actions += [
        StopReplica(each.uid)
        for each in replicas
        if each.number not in desired_numbers and not each.leaving
    ]
    latest = sorted(ended, key=lambda each: (each.ended_at or _LONG_AGO, each.number), reverse=True)
    too_many = latest[0 if deleting else keep_ended :]
    actions += [DropReplica(each.uid) for each in too_many if not each.deleting]
    if not replicas and not ended and not actions and deleting:
        return Decision(actions=[ForgetService()])
    return Decision(actions=actions, requeue_at=now + timedelta(seconds=5) if actions else None)


def _find_served(service: ServiceRecord, serving: Sequence[SeenReplica]) -> int:
    """The template that answers as a whole, or did last."""
    template, count = service.spec.template, replicas_of(service.spec, service.status)
    answering = sum(replica.ready for replica in serving if replica.template == template)
    return template if 0 < count <= answering else service.status.serving_template


def _candidate(service: ServiceRecord, others: Sequence[SeenReplica]) -> CandidateStatus | None:
    """How the candidate stands, of those replicas that do not serve."""
    candidate, count = service.spec.candidate, candidates_of(service.spec, service.status)
    if candidate is None:
        return None
    found = CandidateStatus(candidate.template)
    if not count or service.delete_requested_at is not None:
        return replace(found, phase=ServicePhase.STOPPED)
    if (failure := service.status.failure_of(candidate.template)) is not None:
        return replace(
            found, phase=ServicePhase.FAILED, reason=failure.reason, message=failure.message
        )
    mine = [each for each in others if each.template == candidate.template and not each.leaving]
    ready = sum(each.ready for each in mine)
    trouble = _find_trouble(mine)
    if trouble is not None:
        found = replace(found, reason=trouble.reason, message=trouble.message)
    if ready >= count:
        return replace(found, phase=ServicePhase.RUNNING, ready=ready)
    if ready:
        message = found.message or f"{ready} of {count} replicas answer"
        return replace(found, phase=ServicePhase.DEGRADED, ready=ready, message=message)
    if trouble is not None and trouble.hopeless:
        return replace(found, phase=ServicePhase.FAILED)
    return found


def _find_trouble(replicas: Sequence[SeenReplica]) -> SeenReplica | None:
    """The replica whose message tells why a release does not answer: a hopeless one first."""
    hopeless = [each for each in replicas if each.hopeless]
    explained = [each for each in replicas if each.message and not each.ready]
    return next(iter([*hopeless, *explained]), None)


def _stands(
    service: ServiceRecord,
    replicas: Sequence[SeenReplica],
    serving: Sequence[SeenReplica],
    no_port: str,
) -> tuple[ServicePhase, str, str]:
    """The phase, and why."""
    spec, count = service.spec, replicas_of(service.spec, service.status)
    if service.delete_requested_at is not None:
        return ServicePhase.STOPPING, Reason.DELETED, "it is being deleted"
    if count == 0:
        if spec.desired is Desired.SAVED and not replicas:
            return ServicePhase.SAVED, "", ""
        return (ServicePhase.STOPPING if replicas else ServicePhase.STOPPED), Reason.CANCELLED, ""
    # Replicas of a service without a port answer nobody.
    ready = 0 if no_port else sum(replica.ready for replica in serving)
    reason, message = _failure_reason(service, replicas, serving)
    if no_port and not message:
        reason, message = Reason.NO_PORT, no_port
    if ready >= count:
        return ServicePhase.RUNNING, reason, message
    if ready or any(each.hopeless for each in serving):
        return ServicePhase.DEGRADED, reason, message or f"{ready} of {count} replicas answer"
    if service.status.failure_of(served_release(spec, service.status)) is not None and not serving:
        return ServicePhase.FAILED, reason, message
    return ServicePhase.STARTING, reason, message


def _failure_reason(
    service: ServiceRecord, replicas: Sequence[SeenReplica], serving: Sequence[SeenReplica]
) -> tuple[str, str]:
    """What keeps the service from answering as it is wanted, if anything does: a reason and a
    sentence.
    """
    template = service.spec.template
    if (failure := service.status.failure_of(template)) is not None:
        return failure.reason, failure.message
    trouble = next(
        (each for each in replicas if each.hopeless and each.template == template), None
    ) or next((each for each in serving if each.message and not each.ready), None)
    return (trouble.reason, trouble.message) if trouble is not None else ("", "")
