"""What processes use: time on a core, and memory."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path


def cpu_seconds(pids: Iterable[int]) -> float:
    """Of all threads that live, to the nanosecond: ticks are too coarse."""
    total = 0
    for pid in pids:
        for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):
                total += int(file.read_text().split()[0])
    return total / 1e9


def memory_mb(pids: Iterable[int]) -> float:
    """Proportional set size: shared pages count once."""
    kilobytes = 0
    for pid in pids:
        with contextlib.suppress(OSError, IndexError):  # it is leaving
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            kilobytes += int(re.findall(r"^Pss: +(\d+) kB", rollup, re.MULTILINE)[0])
    return kilobytes / 1024


@contextlib.contextmanager
def awake() -> Iterator[None]:
    """Cores that do not fall asleep, by what runs on each only while nobody else wants it.

    A virtual core that sleeps takes as long to wake as a small request takes; on a machine with
    other work it does not sleep.
    """
    busy = "import os; os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\nwhile True: pass"
    with contextlib.ExitStack() as stack:
        for _ in os.sched_getaffinity(0):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", busy]))
            stack.callback(process.kill)
        yield
