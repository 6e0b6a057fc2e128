"""Memory that large requests used is kept for the next ones, up to a bound."""

import ctypes
import logging

KEPT = 64 << 20
"""Bytes that lie free at the end of the heap and are not given back."""
APART = 32 << 20
"""From this size on a piece is asked of the kernel, and given back, by itself: the most that glibc allows."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # <malloc.h>

log = logging.getLogger(__name__)


def keep_freed() -> None:
    """Tell the allocator. An image as JSON else costs a thousand page faults, which are a fifth of its time."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        log.debug("this C library has no mallopt")
        return
    mallopt(_TRIM_THRESHOLD, KEPT)
    mallopt(_MMAP_THRESHOLD, APART)
