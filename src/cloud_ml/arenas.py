"""Where threads allocate from: glibc gives each an arena of its own, which pays only where they run side by side."""

from __future__ import annotations

import ctypes

_ARENA_MAX = -8  # <malloc.h>
_FEW = 2


def share_arenas() -> None:
    """Have all threads that are to come share two arenas, where the C library knows such a thing.

    Python lets one thread run at a time. With an arena for each of a dozen, what one has freed is of no use to the
    others: some megabytes more, and for hours a little more now and then, when one does what it has not done before.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_ARENA_MAX, _FEW)
