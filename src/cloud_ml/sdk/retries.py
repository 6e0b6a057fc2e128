"""Which requests are sent again, and after how long. Pure: the caller waits."""

from __future__ import annotations

import enum
from dataclasses import dataclass

SAFE_METHODS = frozenset({"GET", "HEAD"})
BUSY_STATUSES = frozenset({429, 502, 503, 504})
LOST_STATUSES = frozenset({502, 504})
"""Of these, those of somebody on the way who has lost the server's answer."""


class AttemptFailure(enum.Enum):
    """What went wrong with a try."""

    UNSENT = "unsent"
    """No connection: the server has seen nothing of it."""
    LOST = "lost"
    """The connection broke or was silent: whether the request was carried out is unknown."""
    BUSY = "busy"
    """Answered with one of ``BUSY_STATUSES``: somebody on the way asks for patience."""
    FINAL = "final"
    """Another try would meet the same: an unknown host, a certificate that is not trusted."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How stubborn the client is. Delays in seconds.

    Attributes:
        attempts: Tries in all, the first included; 1 means never again.
        first_s: Longest delay before the second try; doubles for each further one.
        longest_s: Upper bound of any delay of ours.
        patience_s: Longest ``Retry-After`` that is obeyed; beyond it the error is handed on at
            once.
    """

    attempts: int = 5
    first_s: float = 0.2
    longest_s: float = 5.0
    patience_s: float = 30.0

    def backoff(self, attempt: int, luck: float) -> float:
        """The delay after try ``attempt`` (1 for the first), between half and all of its bound.

        ``luck`` is a random number from 0 to 1: many clients that failed together come back apart.
        """
        bound = min(self.longest_s, self.first_s * 2.0 ** (attempt - 1))
        return bound * (0.5 + luck / 2)


def is_repeatable(method: str, *, idempotency_key: str | None) -> bool:
    """Whether a request may be sent again, signed anew, although the first may have been carried
    out.

    Reading changes nothing, and the server carries out a request with an idempotency key only once.
    ``PUT`` and ``DELETE`` are no such requests: between the two tries somebody else may have
    written under the same name.
    """
    return method in SAFE_METHODS or idempotency_key is not None


def delay_before_retry(
    policy: RetryPolicy,
    failure: AttemptFailure,
    *,
    repeatable: bool,
    attempt: int,
    luck: float,
    retry_after_s: float | None = None,
) -> float | None:
    """Seconds to wait before the next try, or ``None`` when there shall be none.

    Args:
        policy: How stubborn to be.
        failure: What became of the try.
        repeatable: See ``is_repeatable``.
        attempt: Tries so far, at least 1.
        luck: A random number from 0 to 1.
        retry_after_s: What the server asked for, if it did.
    """
    if failure is AttemptFailure.FINAL or attempt >= policy.attempts:
        return None
    if not repeatable and failure is not AttemptFailure.UNSENT:
        return None
    if retry_after_s is not None:
        return retry_after_s if retry_after_s <= policy.patience_s else None
    return policy.backoff(attempt, luck)


def parse_retry_after(text: str | None) -> float | None:
    """Seconds of a ``Retry-After`` header; ``None`` when it is absent, a date, or nonsense."""
    if text is None or not text.strip().isascii() or not text.strip().isdigit():
        return None
    return float(text.strip())
