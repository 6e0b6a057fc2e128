"""How a model service stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.domain.workloads.reasons import CRASHES, NEVER_RETRIED, WAITS


class ServicePhase(StrEnum):
    """``Running`` is a service of which enough replicas answer; ``Failed`` one whose replicas
    cannot be started.
    """

    SAVED = "Saved"
    STARTING = "Starting"
    RUNNING = "Running"
    DEGRADED = "Degraded"
    FAILED = "Failed"
    STOPPING = "Stopping"
    STOPPED = "Stopped"


WIRE_STATES: Mapping[ServicePhase, str] = {
    ServicePhase.SAVED: "initial",
    ServicePhase.STARTING: "creating",
    ServicePhase.RUNNING: "running",
    ServicePhase.DEGRADED: "processing",
    ServicePhase.FAILED: "failed",
    ServicePhase.STOPPING: "deleting",
    ServicePhase.STOPPED: "initial",
}


@dataclass(frozen=True)
class DesiredReplica:
    """A replica that is to be there: its number, which no other of the service ever has, and its
    template.

    One on ``trial`` belongs to the candidate: it does not count among those that are to answer.
    """

    number: int
    template: int
    trial: bool = False


@dataclass(frozen=True)
class CandidateStatus:
    """How the release that is tried stands."""

    template: int
    phase: ServicePhase = ServicePhase.STARTING
    reason: str = ""
    message: str = ""
    ready: int = 0


@dataclass(frozen=True)
class FailedRelease:
    """A release that never answered and of which no further replica is made, and why."""

    release: int
    reason: str = ""
    message: str = ""


@dataclass(frozen=True)
class ServiceStatus:
    """What was decided about a service, and what was seen of it.

    ``wishes`` are the replicas that are to be there; whatever else carries the service's label is
    to go. ``next`` is the number of the next one. ``ready`` counts those that answer and are not on
    trial, ``leaving`` those that are still there and not wished; ``serving_template`` is the
    template of which last as many answered as were wanted. ``answering`` are the numbers of
    replicas that answer, those of the candidate included; ``answered`` the releases of which a
    replica has ever answered since the service was started, ``failed`` those that cannot be served.
    ``given_up`` are the numbers of replicas that serve and of which no further attempt is made.
    ``port`` is where the gateway answers for the service, 0 while it has none; ``scale`` is how
    many replicas were decided on by what is asked of it, 0 for as many as the service says.
    ``blocked_since``: when a roll-out began to wait for room in the quota or on the machine, and
    for nothing else.
    """

    phase: ServicePhase = ServicePhase.STARTING
    reason: str = ""
    message: str = ""
    wishes: tuple[DesiredReplica, ...] = ()
    next: int = 1
    ready: int = 0
    serving_template: int = 0
    port: int = 0
    scale: int = 0
    candidate: CandidateStatus | None = None
    leaving: int = 0
    blocked_since: datetime | None = None
    answering: tuple[int, ...] = ()
    answered: tuple[int, ...] = ()
    failed: tuple[FailedRelease, ...] = ()
    given_up: tuple[int, ...] = ()

    def failure_of(self, release: int) -> FailedRelease | None:
        """Why a release cannot be served; ``None`` if nothing speaks against it."""
        return next((each for each in self.failed if each.release == release), None)


@dataclass(frozen=True)
class SeenReplica:
    """A replica as its record and its door tell.

    ``ready``: it answers that its model is loaded. ``load_failed``: it says that it does not try to
        load it again.
    ``leaving``: it was asked to end; ``deleting``: its record and its
    log are to go, too.
    """

    uid: str
    number: int
    template: int
    phase: Phase
    reason: str = ""
    message: str = ""
    ready: bool = False
    leaving: bool = False
    deleting: bool = False
    ended_at: datetime | None = None
    attempt: int = 1
    load_failed: bool = False

    @property
    def waits_for_room(self) -> bool:
        """Whether the organisation's quota, or the machine, has no room for it at present."""
        return self.phase is Phase.QUEUED and self.reason in WAITS

    @property
    def ended(self) -> bool:
        """Whether it has gone as it was asked to: only its log is left."""
        return self.leaving and self.phase.terminal

    @property
    def hopeless(self) -> bool:
        """Whether a further attempt would only meet the same cause again."""
        return self.load_failed or (self.phase.terminal and self.reason in NEVER_RETRIED)

    def crashes(self, tries: int) -> bool:
        """Whether so many attempts have ended for a cause that lies in what it runs."""
        return self.phase is Phase.RESTARTING and self.attempt > tries and self.reason in CRASHES
