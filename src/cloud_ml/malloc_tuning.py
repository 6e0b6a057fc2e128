"""Where threads allocate from: glibc gives each an arena of its own, which pays only where they
run side by side.
"""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # <malloc.h>
_FEW = 2
_KEPT_BYTES = 8 << 20
"""Bytes that lie free at the end of a heap and are not given back: pieces of uploads and
downloads come again.
"""
_APART_BYTES = 4 << 20
"""From this size on a piece is asked of the kernel, and given back, by itself. With glibc's own
128 KiB each piece of a body costs the kernel the clearing of its pages.
"""


def share_arenas() -> None:
    """Have all threads that are to come share two arenas, and keep some of what they free, where
    glibc is.

    Python lets one thread run at a time. With an arena for each of a dozen, what one has freed is
    of no use to the others: some megabytes more, and for hours a little more now and then, when one
    does what it has not done before.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_ARENA_MAX, _FEW)
    mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
    mallopt(_MMAP_THRESHOLD, _APART_BYTES)
