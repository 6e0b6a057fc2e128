"""Limits by control groups, version 1 and 2, behind one small face.

Making a group, joining and removing it cost milliseconds, so the spawner keeps a few ready (``Pool``)
and removes used ones when nobody waits. A group serves one task and is never used again: its counters
(out-of-memory kills, peak) are then that task's alone.

The file system's root is a parameter, so that version 2's rules are tested against a folder that only
looks like it.
"""

from __future__ import annotations

import abc
import contextlib
import errno
import itertools
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_V1_CONTROLLERS = ("memory", "pids", "cpu", "cpuacct")
_CPU_PERIOD_US = 100_000
_TICKS = os.sysconf("SC_CLK_TCK")
_counter = itertools.count(1)


@dataclass(frozen=True)
class Limits:
    """What a task may use; ``None`` leaves it unlimited. Memory in bytes."""

    memory_bytes: int | None = None
    cpu_millis: int | None = None
    processes: int | None = None


@dataclass(frozen=True)
class Sample:
    """What a group has used so far, and how it stands at its memory limit.

    ``limit_hits`` counts how often the limit was run into; it grows while the kernel reclaims.
    ``anonymous_bytes`` is what cannot be reclaimed by dropping file pages.
    """

    cpu_seconds: float
    user_cpu_seconds: float
    memory_bytes: int
    memory_peak_bytes: int
    processes: int
    anonymous_bytes: int
    limit_hits: int
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
    def join(self) -> None:
        """Move the calling process in; its children are born inside."""

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
        members = [pid for pid in self.processes() if pid != os.getpid()]
        for pid in members:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        return len(members)


class Hierarchy(abc.ABC):
    """Where groups of ours are made: a folder per platform instance below the server's own group."""

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


# ---------------------------------------------------------------------------------------- version 1


class HierarchyV1(Hierarchy):
    """A folder of the same name in each of the memory, pids, cpu and cpuacct hierarchies."""

    version = 1

    def __init__(self, folders: dict[str, str]) -> None:
        self.folders = {controller: Path(folder) for controller, folder in folders.items()}

    def group(self, name: str) -> Group:
        return GroupV1(name, {controller: folder / name for controller, folder in self.folders.items()})

    def make(self, name: str) -> Group:
        for folder in self.folders.values():
            (folder / name).mkdir(parents=True, exist_ok=True)
        return self.group(name)

    def names(self) -> list[str]:
        return _subfolders(self.folders["memory"])

    def remove(self) -> None:
        for folder in self.folders.values():
            with contextlib.suppress(OSError):
                folder.rmdir()

    def description(self) -> dict[str, str]:
        return {"version": "1", **{controller: str(folder) for controller, folder in self.folders.items()}}


class GroupV1(Group):
    """One task's folder in each hierarchy."""

    def __init__(self, name: str, folders: dict[str, Path]) -> None:
        self.name = name
        self._folders = folders

    def limit(self, limits: Limits) -> None:
        if limits.memory_bytes is not None:
            memory = self._folders["memory"]
            _write(memory / "memory.limit_in_bytes", limits.memory_bytes)
            with contextlib.suppress(FileNotFoundError):  # only where swap is accounted
                _write(memory / "memory.memsw.limit_in_bytes", limits.memory_bytes)
        if limits.processes is not None and "pids" in self._folders:
            _write(self._folders["pids"] / "pids.max", limits.processes)
        if limits.cpu_millis is not None and "cpu" in self._folders:
            cpu = self._folders["cpu"]
            _write(cpu / "cpu.cfs_quota_us", max(1000, limits.cpu_millis * _CPU_PERIOD_US // 1000))
            _write(cpu / "cpu.shares", max(2, limits.cpu_millis * 1024 // 1000))

    def join(self) -> None:
        for folder in self._folders.values():
            _write(folder / "cgroup.procs", 0)

    def processes(self) -> list[int]:
        return _numbers(self._folders["memory"] / "cgroup.procs")

    def sample(self) -> Sample:
        memory = self._folders["memory"]
        control = _table(memory / "memory.oom_control")
        accounting = self._folders.get("cpuacct", memory)
        return Sample(
            cpu_seconds=_number(accounting / "cpuacct.usage") / 1e9,
            user_cpu_seconds=_table(accounting / "cpuacct.stat").get("user", 0) / _TICKS,
            memory_bytes=_number(memory / "memory.usage_in_bytes"),
            memory_peak_bytes=_number(memory / "memory.max_usage_in_bytes"),
            processes=_number(self._folders["pids"] / "pids.current") if "pids" in self._folders else 0,
            anonymous_bytes=_table(memory / "memory.stat").get("total_rss", 0),
            limit_hits=_number(memory / "memory.failcnt"),
            oom_kills=control.get("oom_kill", 0),
        )

    def remove(self) -> bool:
        left = [folder for folder in self._folders.values() if not _remove(folder)]
        return not left


# ---------------------------------------------------------------------------------------- version 2


class HierarchyV2(Hierarchy):
    """A folder of the unified hierarchy whose controllers are handed down to its children."""

    version = 2

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def group(self, name: str) -> Group:
        return GroupV2(name, self.folder / name)

    def make(self, name: str) -> Group:
        (self.folder / name).mkdir(parents=True, exist_ok=True)
        return self.group(name)

    def names(self) -> list[str]:
        return _subfolders(self.folder)

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def description(self) -> dict[str, str]:
        return {"version": "2", "folder": str(self.folder)}


class GroupV2(Group):
    """One task's folder."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._folder = folder

    def limit(self, limits: Limits) -> None:
        if limits.memory_bytes is not None:
            _write(self._folder / "memory.max", limits.memory_bytes)
            with contextlib.suppress(FileNotFoundError):  # only where swap is accounted
                _write(self._folder / "memory.swap.max", 0)
        if limits.processes is not None:
            _write(self._folder / "pids.max", limits.processes)
        if limits.cpu_millis is not None:
            quota = max(1000, limits.cpu_millis * _CPU_PERIOD_US // 1000)
            _write(self._folder / "cpu.max", f"{quota} {_CPU_PERIOD_US}")

    def join(self) -> None:
        _write(self._folder / "cgroup.procs", 0)

    def processes(self) -> list[int]:
        return _numbers(self._folder / "cgroup.procs")

    def sample(self) -> Sample:
        events = _table(self._folder / "memory.events")
        memory = _number(self._folder / "memory.current")
        cpu = _table(self._folder / "cpu.stat")
        return Sample(
            cpu_seconds=cpu.get("usage_usec", 0) / 1e6,
            user_cpu_seconds=cpu.get("user_usec", 0) / 1e6,
            memory_bytes=memory,
            memory_peak_bytes=_number(self._folder / "memory.peak") or memory,
            processes=_number(self._folder / "pids.current"),
            anonymous_bytes=_table(self._folder / "memory.stat").get("anon", 0),
            limit_hits=events.get("max", 0),
            oom_kills=events.get("oom_kill", 0),
        )

    def kill(self) -> int:
        members = len(self.processes())
        try:
            _write(self._folder / "cgroup.kill", 1)
        except OSError:
            return super().kill()
        return members

    def remove(self) -> bool:
        return _remove(self._folder)


# ------------------------------------------------------------------------------------------- finding


def find(instance: str, *, root: Path = Path("/sys/fs/cgroup"), own: str | None = None) -> tuple[Hierarchy | None, str]:
    """The hierarchy in which this process may make groups, or ``None`` and the sentence that says why.

    Args:
        instance: Tells platform instances on one machine apart.
        root: Where control groups are mounted.
        own: The content of ``/proc/self/cgroup``.
    """
    lines = (own if own is not None else Path("/proc/self/cgroup").read_text("ascii")).splitlines()
    places = {
        name: path for line in lines for _, controllers, path in [line.split(":", 2)] for name in controllers.split(",")
    }
    try:
        if "memory" in places:
            return _find_v1(instance, root, places), ""
        if (root / "cgroup.controllers").exists():
            return _find_v2(instance, root, places.get("", "/")), ""
    except OSError as error:
        return None, _no_limits(error)
    return None, "control groups are not mounted, so limits are not enforced; mount cgroup2 on /sys/fs/cgroup"


def restore(description: dict[str, str]) -> Hierarchy | None:
    """The hierarchy that another process described; an empty description is none."""
    if not description:
        return None
    rest = {key: value for key, value in description.items() if key != "version"}
    return HierarchyV1(rest) if description["version"] == "1" else HierarchyV2(rest["folder"])


def _find_v1(instance: str, root: Path, places: dict[str, str]) -> Hierarchy:
    folders = {}
    for controller in _V1_CONTROLLERS:
        mount = root / controller
        if controller in places and mount.is_dir():
            folder = mount / places[controller].lstrip("/") / instance
            folder.mkdir(parents=True, exist_ok=True)
            folders[controller] = str(folder)
    hierarchy = HierarchyV1(folders)
    return _probed(hierarchy)


def _find_v2(instance: str, root: Path, own: str) -> Hierarchy:
    """Below our own group when it was delegated to us, else at the top (root only).

    A group with processes in it cannot hand controllers down (the "no internal processes" rule of
    cgroup-v2), so ours are made beside the server's: in the parent folder.
    """
    mine = root / own.lstrip("/")
    for parent in dict.fromkeys((mine.parent if mine != root else root, root)):
        folder = parent / instance
        try:
            folder.mkdir(exist_ok=True)
            for level in (parent, folder):
                _hand_down(level)
            return _probed(HierarchyV2(str(folder)))
        except OSError as error:
            failure = error
    raise failure


def _hand_down(folder: Path) -> None:
    offered = (folder / "cgroup.controllers").read_text("ascii").split()
    wanted = [f"+{name}" for name in ("memory", "pids", "cpu") if name in offered]
    if "+memory" not in wanted:
        raise OSError(errno.EACCES, "the memory controller is not handed down to", str(folder))
    _write(folder / "cgroup.subtree_control", " ".join(wanted))


def _probed(hierarchy: Hierarchy) -> Hierarchy:
    probe = hierarchy.make(f"probe-{os.getpid()}")
    try:
        probe.limit(Limits(memory_bytes=64 * 2**20, processes=16))
    finally:
        probe.remove()
    return hierarchy


def _no_limits(error: OSError) -> str:
    return (
        f"limits are not enforced: control groups cannot be made ({error.strerror}: {error.filename}); "
        "run the server as root, or in a delegated group: systemd-run --user --scope -p Delegate=yes cloudml server"
    )


# --------------------------------------------------------------------------------------------- pool


class Pool:
    """Groups made ahead and removed behind, so that neither is waited for."""

    def __init__(self, hierarchy: Hierarchy, size: int = 4) -> None:
        self._hierarchy = hierarchy
        self._size = size
        self._ready: list[Group] = []
        self._used: list[Group] = []

    def take(self) -> Group:
        """A fresh group.

        Raises:
            OSError: None is ready and none can be made.
        """
        return self._ready.pop() if self._ready else self._make()

    def give_back(self, group: Group) -> None:
        """Hand in a used group; it is emptied and removed by ``tidy``."""
        self._used.append(group)

    def tidy(self) -> bool:
        """Remove one used group or make one ready; false when there is nothing to do at present."""
        for group in self._used:
            group.kill()
            if group.remove():
                self._used.remove(group)
                return True
        if len(self._ready) < self._size:
            with contextlib.suppress(OSError):
                self._ready.append(self._make())
                return True
        return False

    @property
    def waiting(self) -> bool:
        """Whether a used group could not be removed yet."""
        return bool(self._used)

    def sweep(self, in_use: Sequence[str]) -> None:
        """Take over what a predecessor left: everything but the groups named."""
        self._used += [self._hierarchy.group(name) for name in self._hierarchy.names() if name not in in_use]

    def close(self) -> None:
        """Remove what is ready or empty; groups that are in use stay, and with them the folder above."""
        for group in (*self._ready, *self._used):
            group.remove()
        self._ready, self._used = [], []
        self._hierarchy.remove()

    def _make(self) -> Group:
        return self._hierarchy.make(f"task-{os.getpid()}-{next(_counter)}")


def _write(path: Path, value: object) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, str(value).encode("ascii"))
    finally:
        os.close(file)


def _number(path: Path) -> int:
    try:
        return int(path.read_text("ascii"))
    except (OSError, ValueError):
        return 0


def _numbers(path: Path) -> list[int]:
    try:
        return [int(word) for word in path.read_text("ascii").split()]
    except OSError:
        return []


def _table(path: Path) -> dict[str, int]:
    try:
        pairs = [line.split() for line in path.read_text("ascii").splitlines()]
    except OSError:
        return {}
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _subfolders(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(folder) if entry.is_dir()]
    except OSError:
        return []


def _remove(folder: Path) -> bool:
    try:
        for child in _subfolders(folder):
            _remove(folder / child)
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
