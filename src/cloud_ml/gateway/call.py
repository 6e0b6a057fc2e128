"""A call on its way through the gateway, and what it asks of its service."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Protocol

from cloud_ml.gateway import answers
from cloud_ml.gateway.answers import Refusal
from cloud_ml.gateway.replica import Replica


@dataclass(frozen=True, slots=True)
class Bounds:
    """See the settings of the gateway."""

    waiting: int
    waiting_s: float
    in_flight: int
    attempts: int
    timeout_s: float
    stream_unread_bytes: int = 262_144
    open_health: bool = False


class CallService(Protocol):
    """What a call asks of its service; ``Service`` says what each does."""

    @property
    def bounds(self) -> Bounds: ...
    @property
    def replica_window(self) -> int: ...
    def left_ms(self, call: Call) -> int: ...
    def goes(self, call: Call) -> bool: ...
    def done(self, call: Call, *, well: bool = True) -> None: ...
    def failed(self, call: Call, *, refused: bool, final: Refusal | None) -> None: ...


class Call(abc.ABC):
    """One request of a caller.

    Args:
        service: Whose it is.
        deadline: In the loop's time.
        safe: Whether it may be done twice.
        release_name: The release that is to answer, in the caller's words; see ``releases.HEADER``.
    """

    lasting = False
    """Whether it may be open for long without asking for anything."""
    __slots__ = (
        "attempts",
        "deadline",
        "release_name",
        "replica",
        "safe",
        "sent_at",
        "service",
        "trial",
        "tried",
        "waited_s",
        "waiting_since",
    )  # fmt: skip

    def __init__(
        self, service: CallService, deadline: float, *, safe: bool, release_name: str = ""
    ) -> None:
        self.service = service
        self.deadline = deadline
        self.safe = safe
        self.release_name = release_name
        self.trial = False
        self.sent_at = 0.0
        self.waited_s = 0.0
        self.waiting_since = 0.0
        self.attempts = 0
        self.replica: Replica | None = None
        self.tried: set[str] = set()

    @abc.abstractmethod
    def waits(self) -> bool:
        """Whether the caller still waits."""

    @abc.abstractmethod
    def refuse(self, refusal: Refusal) -> None:
        """Answer with an error of the gateway's own."""

    @abc.abstractmethod
    def send(self, replica: Replica) -> None:
        """Have a replica answer; ends in ``done`` or ``failed``."""

    @abc.abstractmethod
    def cancel(self) -> None:
        """Tell the replica that nobody waits any more."""

    @property
    def release(self) -> int:
        """The number of the release that has the call; 0 where it is not known."""
        return self.replica.backend.release if self.replica is not None else 0

    def failed(
        self, *, refused: bool, too_large: bool = False, broken: bool = False, no_room: bool = False
    ) -> None:
        """The replica gave no answer: try another one, where that may be."""
        final = _final(too_large=too_large, broken=broken, no_room=no_room)
        self.service.failed(self, refused=refused, final=final)


def _final(*, too_large: bool, broken: bool, no_room: bool) -> Refusal | None:
    if too_large:
        return answers.TOO_LARGE
    if no_room:
        return answers.NO_ROOM
    return answers.BROKEN if broken else None
