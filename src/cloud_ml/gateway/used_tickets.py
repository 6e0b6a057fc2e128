"""Tickets of applications that were used: each opens once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from cloud_ml.auth.application_tickets import Ticket


class UsedTickets:
    """Remembers tickets until they have expired.

    Args:
        now: Tells the time, in seconds since 1970.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._used: dict[str, int] = {}
        self._since = now()

    def inherit(self, used: Mapping[str, int]) -> None:
        """Take over from a predecessor, which told what it had seen."""
        self._used |= used
        # The predecessor told of every use, so tickets from before this process count, too.
        self._since = 0.0

    def use(self, ticket: Ticket) -> bool:
        """Whether the ticket opens now. It does not another time.

        One that was issued before this process began may have been used in a process that crashed.
        """
        now, early = self._now(), ticket.issued_ms < self._since * 1000
        self._used = {nonce: ends for nonce, ends in self._used.items() if ends >= now}
        if ticket.nonce in self._used or now >= ticket.expires or early:
            return False
        self._used[ticket.nonce] = ticket.expires
        return True

    @property
    def used(self) -> Mapping[str, int]:
        """Nonces and when their tickets expire, for a successor."""
        return dict(self._used)
