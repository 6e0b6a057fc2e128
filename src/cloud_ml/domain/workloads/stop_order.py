"""The order in which the processes of a gang are told to stop. Pure.

Some programs close their connections in good order only while the others still answer.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

_SHARE, _MOST_S = 0.25, 5.0


def next_to_stop(
    living: Sequence[str], stopped_last: Collection[str], *, time_is_short: bool = False
) -> list[str]:
    """The names of those that get SIGTERM now.

    Args:
        living: Those that have not ended.
        stopped_last: Those that are told when all others have ended.
        time_is_short: So little of the grace time is left that all are told.
    """
    first = [] if time_is_short else [name for name in living if name not in stopped_last]
    return first or list(living)


def last_call_s(grace_s: float) -> float:
    """How long those that are stopped last have at least, of a grace time: no process is killed
    that was not told to stop before.
    """
    return min(_SHARE * grace_s, _MOST_S)
