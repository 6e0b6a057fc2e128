"""The stand-in for a control group where none can be made: looks at the process tree now and then.

It cannot cap, only notice: memory past its limit ends the task at the next look, cpu is not
bounded. ``cloudml doctor`` says so, and how to get real limits.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from cloud_ml.engines.local.cgroups import Group, Limits, Sample
from cloud_ml.engines.local.processes import proctree

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class WatchedTree(Group):
    """A process and everything below it."""

    enforced = False

    def __init__(self) -> None:
        self.name = ""
        self._root: int | None = None
        self._peak = 0
        self._cpu = 0.0

    def attach(self, pid: int) -> None:
        """Watch this process from now on."""
        self._root = pid

    def limit(self, limits: Limits) -> None:
        """Nothing can be set; the caller compares samples with what it wanted."""

    def procs_files(self) -> list[str]:
        """None: a child belongs to the tree by birth."""
        return []

    def processes(self) -> list[int]:
        if self._root is None or not Path(f"/proc/{self._root}").exists():
            return []
        return [self._root, *proctree.descendants(self._root)]

    def sample(self) -> Sample:
        pids = self.processes()
        memory = sum(map(_memory, pids))
        self._peak = max(self._peak, memory)
        # The time of an ended process is counted nowhere until its parent waits for it. The sum
        # must not fall meanwhile.
        self._cpu = max(self._cpu, sum(map(_cpu_seconds, pids)))
        return Sample(
            cpu_seconds=self._cpu,
            user_cpu_seconds=self._cpu,
            memory_bytes=memory,
            memory_peak_bytes=self._peak,
            processes=len(pids),
            anonymous_bytes=memory,
            major_faults=0,
            oom_kills=0,
        )

    def remove(self) -> bool:
        return True

    def kill(self) -> int:
        """Nothing: the supervisor ends every descendant itself."""
        return 0


def _memory(pid: int) -> int:
    """Proportional set size in bytes: shared pages are counted once over all who share them."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    # smaps of other users' processes cannot be read: resident pages are the next best.
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * _PAGE
    return 0


def _cpu_seconds(pid: int) -> float:
    """Of the process and of the children it has waited for."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return sum(map(int, fields[11:15])) / _TICKS
    return 0.0
