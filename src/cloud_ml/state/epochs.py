"""Epochs of revisions: a restored database goes on in a new one, so that nobody takes up a history
that is gone.

The upper bits of a revision, and of an event's id, are the epoch. Numbers stay in the order of
commits, and whoever has one of a replaced database can be told to start again.
"""

from __future__ import annotations

_BITS = 36
"""Numbers of an epoch: enough for two years of a thousand commits a second. 17 more bits are
exact in any JSON.
"""


def epoch_of(number: int) -> int:
    """The epoch in which a revision was made."""
    return number >> _BITS


def moved_to(epoch: int, number: int) -> int:
    """The number of a counter that stood at ``number`` when that epoch begins."""
    return (epoch << _BITS) + (number & ((1 << _BITS) - 1))


def next_epoch(*numbers: int) -> int:
    """An epoch that none of these counters has reached."""
    return max(map(epoch_of, numbers), default=0) + 1


SIZE = 1 << _BITS
NEXT_EPOCH = (  # no text of anybody's is in it
    f"UPDATE counters SET revision = (revision / {SIZE} + 1) * {SIZE} + revision % "  # noqa: S608
    f"{SIZE}, event = (event / {SIZE} + 1) * {SIZE} + event % {SIZE}"
)
"""SQL that begins a new epoch in a database that other programs have restored."""
