"""Memory that large requests used is kept for the next ones, up to a bound."""

import ctypes
import logging
from collections.abc import Mapping

from cloud_ml.net.tuning import FREED_BYTES_KEPT, MAPPED_BYTES_OF_BODIES, MAPPED_BYTES_OF_MODELS

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # <malloc.h>

log = logging.getLogger(__name__)


def keep_freed() -> None:
    """Tell the allocator. An image as JSON else costs a thousand page faults, which are a fifth
    of its time.
    """
    _tell({_TRIM_THRESHOLD: FREED_BYTES_KEPT, _MMAP_THRESHOLD: MAPPED_BYTES_OF_MODELS})


def map_long_bodies() -> None:
    """Tell the allocator of a process that passes bodies on: long ones grow without a copy, and
    are given back.
    """
    # mallopt(3): a threshold that is set stays. Otherwise glibc raises it to the size of the
    # largest mapped piece that was freed, and keeps later ones of that size.
    _tell({_MMAP_THRESHOLD: MAPPED_BYTES_OF_BODIES})


def _tell(values: Mapping[int, int]) -> None:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        log.debug("this C library has no mallopt")
        return
    for name, value in values.items():
        mallopt(name, value)
