"""What a replica may send, and how long it may take: it runs code of a tenant."""

from __future__ import annotations

from dataclasses import dataclass

from cloud_ml.net.http2.frames import ENHANCE_YOUR_CALM, ConnectionFault

EARNED_BY_CALL = 4
"""Control frames that a call allows, and its answer again: acknowledgements, window updates,
pings.
"""
BYTES_FOR_FRAME = 2_048
"""Bytes of a request that allow one more window update."""


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Bounds on one connection to a replica, in bytes, numbers and seconds."""

    body_bytes: int = 64 << 20
    """Largest body of an answer."""
    head_bytes: int = 16_384
    """Largest head of an answer; over HTTP/1.1 together with the interim answers before it."""
    fields: int = 100
    """Most fields in a head."""
    frame_bytes: int = 65_536
    """Largest frame of HTTP/2."""
    window: int = 8 << 20
    """Bytes that a replica may send before the gateway has read them."""
    streams: int = 1_000
    """Most calls at once on one connection of HTTP/2."""
    interim: int = 16
    """Most interim answers (1xx) before an answer."""
    control_frames: int = 1_000
    """Most frames that carry no answer (PING, SETTINGS, WINDOW_UPDATE, empty DATA, ...). Half
    are forgiven each second; calls earn further ones.
    """
    settled_s: int = 10
    """How long a replica may take to send its first SETTINGS."""
    head_s: int = 30
    """How long a head or a frame that has begun may take to become whole."""
    stalled_s: float = 60
    """How long an answer that has begun may pause. Streams of messages may pause for ever."""
    unread_s: int = 60
    """How long a replica may leave requests unread."""
    turn_units: int = 250
    """Units of work for one service in a turn of the event loop; see ``WorkShare``."""


class ControlFrameBudget:
    """Counts frames that cost the replica nothing and carry no answer."""

    __slots__ = ("_count", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0

    def spend(self, kind: str, units: int = 1) -> None:
        """A control frame came.

        Raises:
            ConnectionFault: It was one too many.
        """
        self._count += units
        if self._count > self._most:
            raise ConnectionFault(
                ENHANCE_YOUR_CALM, f"more than {self._most} control frames, the last was {kind}"
            )

    def earn(self, request_bytes: int = 0) -> None:
        """A request went out, or an answer came in."""
        self._count -= EARNED_BY_CALL + request_bytes // BYTES_FOR_FRAME

    def tick(self) -> None:
        """A second passed."""
        # `//` rounds down, so a credit of -1 would stay for ever: it is negated first.
        self._count = self._count // 2 if self._count > 0 else -(-self._count // 2)
