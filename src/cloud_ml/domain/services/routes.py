"""What the gateway has to know of a service: where it answers, for whom, and which replicas take
calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cloud_ml.domain.addresses import Address

SOCKET = "serve.sock"
"""Where a replica listens, in its working folder."""

STABLE, CANDIDATE = "stable", "candidate"
"""What a release is to callers: served, or tried."""


@dataclass(frozen=True)
class Backend:
    """A replica that takes calls. ``address`` is where; ``weight`` its share beside the others.

    ``release`` is the number of what it was made of.
    """

    uid: str
    address: Address
    weight: float = 1.0
    release: int = 0


@dataclass(frozen=True)
class Route:
    """A service as the gateway serves it.

    ``open`` services ask for no token; the others for one of a key of ``org``. With ``wanted``
    false nobody is to answer, and callers are told at once. ``deleting``: nor will anybody answer
    later. ``share`` percent of calls go to the
    release ``candidate``, 0 where there is none, and the others to whatever else is there. A call
    without a deadline ends after ``timeout_s``; 0 leaves that to the gateway.

    An application has a ``label``, the first one of its host name, and a ``key`` in hex with which
    its tickets and sessions are made. It shares its port with all others.
    """

    port: int
    org: str
    name: str
    open: bool = False
    wanted: bool = True
    backends: tuple[Backend, ...] = ()
    candidate: int = 0
    share: int = 0
    timeout_s: float = 0.0
    label: str = ""
    key: str = field(default="", repr=False)
    deleting: bool = False


@dataclass(frozen=True)
class CallingKey:
    """A key whose tokens open the services of its organisation. ``key`` is derived from the secret,
    in hex.

    An access token is one, too, under ``access_token_name`` of its id: ``key`` is then the SHA-256
    of its text, and ``scopes`` are those of its scopes that concern models.
    """

    org: str
    key: str = field(repr=False)
    expires: int = 0
    """Seconds since 1970; 0 for a key without an end."""
    scopes: tuple[str, ...] = ()


def access_token_name(token: str) -> str:
    """The name of an access token among keys; no access key has a colon."""
    return f"token:{token}"


@dataclass(frozen=True)
class Answered:
    """What replicas of a release were asked: calls that ended, those of them that failed, and
    seconds together.
    """

    requests: int = 0
    errors: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Figures:
    """What the gateway counted for a service since it began.

    ``busy_s`` is the sum over calls of their seconds so far, so that its growth over time is how
    many are under way; ``quiet_s`` is how long there was no call.
    """

    requests: int = 0
    failed: int = 0
    refused: int = 0
    retried: int = 0
    hung_up: int = 0
    """Connections closed because a replica broke a rule or a bound."""
    in_flight: int = 0
    waiting: int = 0
    busy_s: float = 0.0
    quiet_s: float = 0.0
    backends: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Requests and calls under way of each replica."""
    releases: Mapping[str, Answered] = field(default_factory=dict)
    """By number, of those that the route names."""
    sides: Mapping[str, Answered] = field(default_factory=dict)
    """``stable`` and ``candidate``: what each was when it answered."""
