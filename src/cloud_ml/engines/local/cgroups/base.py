"""The face of control groups, whatever their version."""

from __future__ import annotations

import abc
import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from cloud_ml.engines.local.cgroups import files

CPU_PERIOD_US = 100_000
"""The period over which a share of cpu time is measured out."""


@dataclass(frozen=True)
class Limits:
    """What a task may use; ``None`` leaves a limit as it is, 0 takes it away. Memory in bytes.

    ``cpu_request_millis`` is no limit: it is the task's share while others want the processors,
    too.
    """

    memory_bytes: int | None = None
    cpu_millis: int | None = None
    processes: int | None = None
    cpu_request_millis: int | None = None


@dataclass(frozen=True)
class Sample:
    """What a group has used so far, and how it stands at its memory limit.

    ``major_faults`` counts pages that had to be read from a disk when they were touched; it grows
    all the time while the kernel takes a program's own pages away to stay within the limit.
    ``anonymous_bytes`` is what cannot be reclaimed by dropping file pages.
    """

    cpu_seconds: float
    user_cpu_seconds: float
    memory_bytes: int
    memory_peak_bytes: int
    processes: int
    anonymous_bytes: int
    major_faults: int
    oom_kills: int


class Group(abc.ABC):
    """One control group (in version 1: one of the same name in each hierarchy).

    ``enforced`` tells whether the kernel keeps the limits, or whether somebody has to look.
    """

    name: str
    enforced = True

    @abc.abstractmethod
    def limit(self, limits: Limits) -> None:
        """Set the limits; ``None`` entries are left as they are."""

    @abc.abstractmethod
    def procs_files(self) -> list[str]:
        """The files to which a process writes itself to move in; its children are born inside."""

    def join(self) -> None:
        """Move the calling process in."""
        for door in self.procs_files():
            # 0 is the process that writes (cgroups(7)).
            files.write(Path(door), 0)

    def attach(self, pid: int) -> None:
        """Told which process was started inside, for those that have to look."""

    @abc.abstractmethod
    def processes(self) -> list[int]:
        """Who is in it now."""

    @abc.abstractmethod
    def sample(self) -> Sample:
        """What it has used so far."""

    @abc.abstractmethod
    def remove(self) -> bool:
        """Take it away; false while somebody is still in it. Gone already is success."""

    def kill(self) -> int:
        """Send SIGKILL to everybody in it; returns how many were there."""
        # A process may fork after the list was read, so callers repeat this until the group is
        # empty.
        members = [pid for pid in self.processes() if pid != os.getpid()]
        for pid in members:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        return len(members)


class Hierarchy(abc.ABC):
    """Where groups of ours are made: a folder per platform instance below the server's own
    group.
    """

    version: int

    @abc.abstractmethod
    def group(self, name: str) -> Group:
        """The group of that name, made or not."""

    @abc.abstractmethod
    def make(self, name: str) -> Group:
        """Make a group.

        Raises:
            OSError: The machine does not let us.
        """

    @abc.abstractmethod
    def names(self) -> list[str]:
        """Every group that there is."""

    @abc.abstractmethod
    def remove(self) -> None:
        """Take the folder itself away, if no group is left in it."""

    @abc.abstractmethod
    def description(self) -> dict[str, str]:
        """What is needed to find it again from another process."""
