"""Threads and the arenas they allocate from, as the C library counts them."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

_COUNT = """
import ctypes, sys, threading
from cloud_ml.malloc_tuning import share_arenas
if "share" in sys.argv:
    share_arenas()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.fopen.restype, libc.fopen.argtypes = ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_char_p]
libc.malloc_info.argtypes, libc.fflush.argtypes = [ctypes.c_int, ctypes.c_void_p], [ctypes.c_void_p]
all_there = threading.Barrier(8)
def allocate():
    all_there.wait()
    libc.malloc(100_000)
    all_there.wait()
threads = [threading.Thread(target=allocate) for _ in range(8)]
[each.start() for each in threads]
[each.join() for each in threads]
out = libc.fopen(b"/dev/stdout", b"w")
libc.malloc_info(0, out)
libc.fflush(out)
"""


def arenas(*words: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", _COUNT, *words], capture_output=True, text=True, check=True
    )
    return done.stdout.count("<heap nr=")


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_info"), reason="another C library than glibc"
)
def test_threads_share_two_arenas() -> None:
    assert arenas() > 4
    assert arenas("share") == 2
