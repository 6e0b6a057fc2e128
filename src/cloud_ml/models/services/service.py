"""What the modern surface answers about model services."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Replica:
    """One process that answers for a service. ``current`` is false for one that a change replaces.

    ``release`` is the number of what it was made of; ``candidate`` is true where that is only
    tried. One that has ``given_up`` does not answer, and no further attempt is made.
    """

    number: int
    uid: str
    phase: str
    ready: bool
    current: bool
    attempt: int = 1
    reason: str = ""
    message: str = ""
    runtime: str = ""
    release: int = 0
    candidate: bool = False
    given_up: bool = False


@dataclass(frozen=True, kw_only=True)
class EndedReplica:
    """A replica that is no more, of which the output is kept. ``reason`` says how its last
    attempt ended.
    """

    number: int
    uid: str
    phase: str
    attempt: int = 1
    reason: str = ""
    message: str = ""
    exit_code: int | None = None
    signal: str | None = None
    release: int = 0
    started_at: datetime | None = None
    finished_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class ServiceCandidate:
    """A release that is tried beside the stable one: ``share`` percent of calls go to it once it
    answers.

    ``wanted`` and ``ready`` count its replicas. ``changes`` are the fields in which it differs from
    what is served.
    """

    release: int
    share: int
    phase: str
    reason: str = ""
    message: str = ""
    wanted: int = 0
    ready: int = 0
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def settled(self) -> bool:
        """Whether it answers, or cannot."""
        return self.phase in ("Running", "Failed", "Stopped")


@dataclass(frozen=True, kw_only=True)
class EarlierRelease:
    """What a service has answered with before, and would again after a rollback."""

    release: int
    model_uri: str


@dataclass(frozen=True)
class FailedUpdate:
    """The release that was to be served and cannot be, and why. Where an earlier one answers,
    that goes on.
    """

    release: int
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class Service:
    """A model service as it stands.

    ``phase`` is the platform's word and ``state`` that of the original wire; ``address`` is
    ``host:port`` for gRPC and HTTP, empty while there is none; ``tls`` says whether it speaks TLS.
    ``spec`` holds the fields that were given. ``release`` is the number of what is served, whose
    replicas ``wanted`` and ``ready`` count; ``earlier`` are those that a rollback leads to, the
    latest last. ``ended`` are replicas that are no more and whose output is kept, the latest last.
    ``failed`` says why ``release`` cannot be served, if it cannot. ``notices`` are sentences to
    know before a change, such as that it interrupts the service.
    """

    uid: str
    name: str
    version: str
    org: str
    owner: str
    revision: int
    phase: str
    state: str
    created_at: datetime
    updated_at: datetime
    address: str = ""
    tls: bool = False
    reason: str = ""
    message: str = ""
    wanted: int = 0
    ready: int = 0
    deleting: bool = False
    replicas: list[Replica] = field(default_factory=list)
    spec: Mapping[str, Any] = field(default_factory=dict)
    release: int = 0
    candidate: ServiceCandidate | None = None
    earlier: list[EarlierRelease] = field(default_factory=list)
    ended: list[EndedReplica] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    failed: FailedUpdate | None = None

    @property
    def url(self) -> str:
        """Where the service is asked over HTTP; empty while it has no address."""
        return f"{'https' if self.tls else 'http'}://{self.address}" if self.address else ""

    @property
    def settled(self) -> bool:
        """Whether nothing is on its way: it answers as it was last wanted, cannot, or is not to."""
        if self.deleting or (self.candidate is not None and not self.candidate.settled):
            return False
        if self.phase == "Running":
            return 0 < self.wanted <= self.ready and all(one.current for one in self.replicas)
        if (
            self.phase == "Degraded"
        ):  # nothing more comes where all that do not answer have given up
            return len(self.replicas) >= self.wanted and all(
                one.current and (one.ready or one.given_up) for one in self.replicas
            )
        if self.phase == "Failed":  # and not still that of before the latest change
            return self.failed is not None
        return self.wanted == 0 and self.phase in ("Saved", "Stopped")


@dataclass(frozen=True, kw_only=True)
class ServiceSummary:
    """A line of the list of services."""

    uid: str
    name: str
    version: str
    org: str
    owner: str
    phase: str
    state: str
    created_at: datetime
    updated_at: datetime
    address: str = ""
    deleting: bool = False
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class ServicePage:
    """Newest first; ``next`` goes into ``after`` of the next request and is null at the end.

    Whoever watches from ``revision`` on misses nothing that is not in the list.
    """

    items: list[ServiceSummary]
    next: int | None = None
    revision: int = 0


@dataclass(frozen=True, kw_only=True)
class ReplicaMetrics:
    """What a replica uses, as last sampled, and what it was asked since it started; null where it
    is not known yet.

    ``requests`` are those that a model saw, ``errors`` those of them that failed and those that
    were refused before; ``seconds`` is what requests took together.
    """

    number: int
    uid: str
    phase: str
    attempt: int = 1
    cores: float | None = None
    cpu_limit: float | None = None
    memory_bytes: int | None = None
    memory_peak_bytes: int | None = None
    memory_limit_bytes: int | None = None
    processes: int | None = None
    requests: int | None = None
    errors: int | None = None
    seconds: float | None = None
    release: int = 0


@dataclass(frozen=True, kw_only=True)
class ReleaseMetrics:
    """What callers got from the replicas of a release, those that are gone included, as the gateway
    counted it.

    ``requests`` are calls that ended, ``errors`` those of them that failed or were answered with an
    error, ``seconds`` what they took together; null where the gateway is not heard. ``share`` is
    the percentage of calls that goes to it.
    """

    release: int
    candidate: bool = False
    share: int = 0
    ready: int = 0
    wanted: int = 0
    requests: int | None = None
    errors: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class CallMetrics:
    """Calls of a service since its gateway began.

    ``failed`` got no answer from any replica, ``refused`` were too many or asked for what is not
    there, ``retried`` counts further tries; ``in_flight`` and ``waiting`` are those of now.
    """

    requests: int = 0
    failed: int = 0
    refused: int = 0
    retried: int = 0
    in_flight: int = 0
    waiting: int = 0


@dataclass(frozen=True, kw_only=True)
class ServiceMetrics:
    """The replicas of a service, the oldest first; its releases, the stable one first; calls at its
    gateway.

    ``calls`` is null where the server that was asked does not hear the gateway.
    """

    items: list[ReplicaMetrics]
    releases: list[ReleaseMetrics] = field(default_factory=list)
    calls: CallMetrics | None = None


@dataclass(frozen=True, kw_only=True)
class ServiceOrigin:
    """A job that exported to where a service has its model from: its code, its arguments, and
    the data it named.
    """

    uid: str
    name: str
    phase: str
    owner: str
    finished_at: datetime | None = None
    module_name: str = ""
    trainer_uri: str = ""
    trainer_digest: str = ""
    runtime: str = ""
    environment_lock: str = ""
    job_args: list[str] = field(default_factory=list)
    data: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class ServiceLineage:
    """Where a model came from.

    ``number`` is the newest numbered version below ``model_uri`` and ``digest`` the SHA-256 of the
    names and digests of its files. ``jobs`` have exported there, the newest first; the first one
    that succeeded before the files were written made them, unless somebody copied others over.
    """

    model_uri: str
    number: int | None = None
    digest: str = ""
    files: int = 0
    size: int = 0
    written_at: datetime | None = None
    jobs: list[ServiceOrigin] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class ModelTensor:
    """An input or an output of a signature. ``shape`` has -1 where any length will do; null: any
    shape.
    """

    name: str
    dtype: str
    shape: list[int] | None = None


@dataclass(frozen=True, kw_only=True)
class ModelSignature:
    """A way to ask a model."""

    name: str
    method: str = ""
    inputs: list[ModelTensor] = field(default_factory=list)
    outputs: list[ModelTensor] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class ServiceSignatures:
    """What a service can be asked, as a replica that answers told. ``number`` is the version
    that it has loaded.
    """

    number: int
    items: list[ModelSignature]


@dataclass(kw_only=True)
class ServiceUpdate:
    """What is to be different about a service; fields that are left out stay.

    With ``canary``, a percentage of calls, what makes replicas differ is tried beside what is
    served, or the share of a candidate that is there is changed.
    """

    model_uri: str | None = None
    model_args: str | list[str] | None = None
    replicas: int | str | None = None
    max_replicas: int | str | None = None
    idle_scale_down: str | int | None = None
    call_timeout: str | int | None = None
    cpu_limit: str | float | None = None
    memory_limit: str | None = None
    gpu_limit: int | str | None = None
    framework: str | None = None
    framework_version: str | None = None
    environment: dict[str, str] | None = None
    secrets: list[str] | None = None
    access: str | None = None
    canary: int | str | None = None


@dataclass(frozen=True, kw_only=True)
class ServiceChange:
    """A model service changed: ``service`` is how it stands then or a moment later, ``None`` when
    it is gone.

    ``revision`` is the place in the stream of changes from which watching can be taken up again.
    """

    revision: int
    uid: str
    name: str
    version: str
    org: str
    service: Service | None = None
