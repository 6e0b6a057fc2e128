"""What follows from one look at a model service and its replicas.

Pure and total, like the decision about a job. A change of template is rolled out one replica at a time: a new one is
added, and once it answers an old one goes, so that as many answer at any time as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cloud_ml.domain.jobs.phases import Phase
from cloud_ml.domain.jobs.reasons import NEVER_RETRIED, Reason
from cloud_ml.domain.jobs.spec import Desired
from cloud_ml.domain.records import Event, EventType, Record
from cloud_ml.domain.services.scale import replicas_of
from cloud_ml.domain.services.spec import ServiceSpec
from cloud_ml.domain.services.status import ServicePhase, ServiceStatus, Wish

ServiceRecord = Record[ServiceSpec, ServiceStatus]


@dataclass(frozen=True)
class SeenReplica:
    """A replica as its record and its door tell. ``ready``: it answers that its model is loaded."""

    uid: str
    number: int
    template: int
    phase: Phase
    reason: str = ""
    message: str = ""
    ready: bool = False
    deleting: bool = False

    @property
    def hopeless(self) -> bool:
        """Whether it ended for a cause that a further attempt would only meet again."""
        return self.phase.terminal and self.reason in NEVER_RETRIED


@dataclass(frozen=True)
class MakeReplica:
    """Make the record of a wished replica unless it is there."""

    wish: Wish


@dataclass(frozen=True)
class DropReplica:
    """Ask for the end of a replica that is wished no more."""

    uid: str


@dataclass(frozen=True)
class ForgetService:
    """Remove the record: every replica is gone."""


ServiceAction = MakeReplica | DropReplica | ForgetService


@dataclass(frozen=True)
class ServiceDecision:
    """A status to commit, *or* actions on the one that stands; never both (see ``records.Decision``)."""

    status: ServiceStatus | None = None
    events: Sequence[Event] = ()
    actions: Sequence[ServiceAction] = ()
    look_again: datetime | None = None


def decide(service: ServiceRecord, replicas: Sequence[SeenReplica], now: datetime) -> ServiceDecision:
    """Decide the next step of a service.

    Args:
        service: The record as committed.
        replicas: Every replica that carries its label.
        now: The time of the look.
    """
    status = service.status
    wanted = _wishes(service, replicas)
    phase, reason, message = _stands(service, replicas, wanted)
    ready = sum(replica.ready for replica in replicas)
    next_number = max([status.next, *(wish.number + 1 for wish in wanted)])
    answering = [replica.template for replica in replicas if replica.ready]
    moved = replace(
        status, phase=phase, reason=reason, message=message, wishes=wanted, next=next_number, ready=ready,
        serving_template=max(answering, default=status.serving_template),
    )  # fmt: skip
    if moved != status:
        return ServiceDecision(status=moved, events=_said(service, moved, now))
    return _act(service, replicas, now)


def _act(service: ServiceRecord, replicas: Sequence[SeenReplica], now: datetime) -> ServiceDecision:
    status = service.status
    wished = {wish.number for wish in status.wishes}
    there = {replica.number for replica in replicas}
    actions: list[ServiceAction] = [MakeReplica(wish) for wish in status.wishes if wish.number not in there]
    actions += [DropReplica(each.uid) for each in replicas if each.number not in wished and not each.deleting]
    if not replicas and not actions and service.delete_requested_at is not None:
        return ServiceDecision(actions=[ForgetService()])
    return ServiceDecision(actions=actions, look_again=now + timedelta(seconds=5) if actions else None)


def _wishes(service: ServiceRecord, replicas: Sequence[SeenReplica]) -> tuple[Wish, ...]:
    """The replicas that are to be there, one step further than they are."""
    status, spec = service.status, service.spec
    count = 0 if service.delete_requested_at is not None else replicas_of(spec, status)
    seen = {replica.number: replica for replica in replicas}
    wishes = [wish for wish in status.wishes if not _spent(seen.get(wish.number))]
    new = [wish for wish in wishes if wish.template == spec.template]
    old = [wish for wish in wishes if wish.template != spec.template]
    if count == 0:
        return ()
    ready = {number for number, replica in seen.items() if replica.ready}
    surge = 1 if old else 0
    number = status.next
    broken = any(seen[wish.number].hopeless for wish in new if wish.number in seen)
    while len(new) < count and len(new) + len(old) < count + surge and not broken:
        new.append(Wish(number, spec.template))
        number += 1
    answering = [wish for wish in new if wish.number in ready]
    keep_old = max(0, count - len(answering))
    old.sort(key=lambda wish: (wish.number in ready, wish.number))  # who does not answer goes first
    new.sort(key=lambda wish: (wish.number not in ready, wish.number))
    return tuple(sorted([*new[:count], *old[len(old) - min(len(old), keep_old) :]], key=lambda wish: wish.number))


def _spent(replica: SeenReplica | None) -> bool:
    """Whether another takes the place of a replica. One that is hopeless keeps it, or it would be tried for ever."""
    return replica is not None and (replica.deleting or (replica.phase.terminal and not replica.hopeless))


def _stands(
    service: ServiceRecord, replicas: Sequence[SeenReplica], wanted: Sequence[Wish]
) -> tuple[ServicePhase, str, str]:
    """The phase, and why."""
    spec, count = service.spec, replicas_of(service.spec, service.status)
    if service.delete_requested_at is not None:
        return ServicePhase.STOPPING, Reason.DELETED, "it is being deleted"
    if count == 0:
        if spec.desired is Desired.SAVED and not replicas:
            return ServicePhase.SAVED, "", ""
        return (ServicePhase.STOPPING if replicas else ServicePhase.STOPPED), Reason.CANCELLED, ""
    ready = sum(replica.ready for replica in replicas)
    numbers = {wish.number for wish in wanted}
    trouble = next((each for each in replicas if each.hopeless and each.template == spec.template), None) or next(
        (each for each in replicas if each.number in numbers and each.message and not each.ready), None
    )
    reason, message = (trouble.reason, trouble.message) if trouble is not None else ("", "")
    if ready >= count:
        return ServicePhase.RUNNING, reason, message
    if ready:
        return ServicePhase.DEGRADED, reason, message or f"{ready} of {count} replicas answer"
    if trouble is not None and trouble.hopeless:
        return ServicePhase.FAILED, reason, message
    return ServicePhase.STARTING, reason, message


def _said(service: ServiceRecord, moved: ServiceStatus, now: datetime) -> list[Event]:
    """What there is to tell of a change of phase."""
    if moved.phase is service.status.phase:
        return []
    bad = moved.phase in (ServicePhase.FAILED, ServicePhase.DEGRADED)
    words = {
        ServicePhase.RUNNING: f"{moved.ready} of {replicas_of(service.spec, moved)} replicas answer",
        ServicePhase.STARTING: "replicas are being started",
        ServicePhase.STOPPED: "every replica is gone",
    }
    sentence = words.get(moved.phase) or moved.message or f"the service is {moved.phase}"
    return [Event(now, str(moved.phase), sentence, EventType.WARNING if bad else EventType.NORMAL)]
