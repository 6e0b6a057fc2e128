"""What a client of HTTP/1 may make large or slow."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cloud_ml.net.budget import Budget

PASSED_OVER = 65_536
"""Bytes of a body that is read and dropped behind such a head."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a peer may make large or slow, in bytes, numbers and seconds.

    A body may take ``body_s`` and a second more for each ``slowest`` bytes of it that came. A peer
    that has closed its side of the connection is answered for ``half_closed_s``: most such peers
    have left. All bodies that are not answered share ``budget``. ``refused`` judges what a head
    means: the service refuses the request, so that it is served without its body, and the
    connection ends. ``unread_budget`` counts answers that wait for their peers to read.
    ``dropped_body_bytes`` of a body are read and dropped behind a head over its bound. With
    ``in_pieces`` the service takes long bodies as they came.
    """

    body_bytes: int = 64 << 20
    head_bytes: int = 16_384
    pipelined: int = 64
    compress_bytes: int = 16_384
    answer_s: float = 30.0
    head_s: float = 10.0
    body_s: float = 20.0
    slowest: int = 16_384
    idle_s: float = 300.0
    linger_s: float = 2.0
    half_closed_s: float = 60.0
    budget: Budget = field(default_factory=Budget)
    unread_budget: Budget | None = None
    refused: Callable[[Any], bool] | None = None
    dropped_body_bytes: int = PASSED_OVER
    in_pieces: bool = False

    def most_quiet_s(
        self,
        *,
        ended: bool,
        full: bool,
        calls: bool,
        half_closed: bool,
        body_came: int | None,
        head_begun: bool,
    ) -> float:
        """Seconds for which nothing may come of what a connection awaits now.

        Args:
            ended: No request is read any more.
            full: The peer does not read.
            calls: Requests are not answered.
            half_closed: The peer sends no more.
            body_came: How many bytes of a body that is not whole have come.
            head_begun: A part of a head has come.
        """
        if ended and not calls:
            return self.linger_s
        if full:
            return self.body_s
        if calls:
            # Else it waits for us. A peer that has closed its side may have gone altogether, which
            # TCP does not tell.
            return self.half_closed_s if half_closed else math.inf
        if body_came is not None:
            # The time is that since the beginning of the body and does not move with its bytes: a
            # trickle is no progress (slow POST attacks).
            return self.body_s + body_came / self.slowest
        return self.head_s if head_begun else self.idle_s
