"""What the modern surface answers about model services."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Replica:
    """One process that answers for a service. ``current`` is false for one that a change replaces."""

    number: int
    uid: str
    phase: str
    ready: bool
    current: bool
    attempt: int = 1
    reason: str = ""
    message: str = ""
    runtime: str = ""


@dataclass(frozen=True, kw_only=True)
class Service:
    """A model service as it stands.

    ``phase`` is the platform's word and ``state`` that of the original wire; ``address`` is ``host:port`` for gRPC
    and HTTP, empty while there is none. ``spec`` holds the fields that were given.
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
    reason: str = ""
    message: str = ""
    wanted: int = 0
    ready: int = 0
    deleting: bool = False
    replicas: list[Replica] = field(default_factory=list)
    spec: Mapping[str, Any] = field(default_factory=dict)


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
    deleting: bool = False


@dataclass(frozen=True, kw_only=True)
class ServicePage:
    """Newest first; ``next`` goes into ``after`` of the next request and is null at the end."""

    items: list[ServiceSummary]
    next: int | None = None


@dataclass(kw_only=True)
class ServiceUpdate:
    """What is to be different about a service; fields that are left out stay."""

    model_uri: str | None = None
    model_args: str | list[str] | None = None
    replicas: int | str | None = None
    max_replicas: int | str | None = None
    idle_scale_down: str | int | None = None
    cpu_limit: str | float | None = None
    memory_limit: str | None = None
    gpu_limit: int | str | None = None
    framework: str | None = None
    framework_version: str | None = None
    environment: dict[str, str] | None = None
    access: str | None = None
