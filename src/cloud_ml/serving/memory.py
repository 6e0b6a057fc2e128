"""Memory that large requests used is kept for the next ones, up to a bound."""

import ctypes
import logging
from collections.abc import Mapping

KEPT = 64 << 20
"""Bytes that lie free at the end of the heap and are not given back."""
APART = 32 << 20
"""From this size on a piece is asked of the kernel, and given back, by itself: the most that glibc allows."""
MAPPED = 1 << 20
"""The same for a process that passes bodies on. The kernel moves such a piece by its pages when it grows."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # <malloc.h>

log = logging.getLogger(__name__)


def keep_freed() -> None:
    """Tell the allocator. An image as JSON else costs a thousand page faults, which are a fifth of its time."""
    _tell({_TRIM_THRESHOLD: KEPT, _MMAP_THRESHOLD: APART})


def map_long_bodies() -> None:
    """Tell the allocator of a process that passes bodies on: long ones grow without a copy, and are given back."""
    _tell({_MMAP_THRESHOLD: MAPPED})


def _tell(values: Mapping[int, int]) -> None:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        log.debug("this C library has no mallopt")
        return
    for name, value in values.items():
        mallopt(name, value)
