"""Version 2: one hierarchy for all controllers."""

from __future__ import annotations

import contextlib
from pathlib import Path

from cloud_ml.engines.local.cgroups import files
from cloud_ml.engines.local.cgroups.base import CPU_PERIOD_US, Group, Hierarchy, Limits, Sample


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
        return files.subfolders(self.folder)

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
            files.write(self._folder / "memory.max", limits.memory_bytes or "max")
            # Allow no swap in addition to the memory limit, as in version 1, whose limit includes
            # swap.
            with contextlib.suppress(FileNotFoundError):  # only where swap is accounted
                files.write(self._folder / "memory.swap.max", 0 if limits.memory_bytes else "max")
        if limits.processes is not None:
            files.write(self._folder / "pids.max", limits.processes)
        if limits.cpu_millis is not None:
            quota = (
                # The kernel refuses a quota below one millisecond.
                max(1000, limits.cpu_millis * CPU_PERIOD_US // 1000) if limits.cpu_millis else "max"
            )
            files.write(self._folder / "cpu.max", f"{quota} {CPU_PERIOD_US}")
        # The kernel's default weight, 100, means one core.
        if limits.cpu_request_millis is not None:
            # The kernel accepts weights from 1 to 10000.
            weight = min(10_000, max(1, limits.cpu_request_millis // 10))
            files.write(self._folder / "cpu.weight", weight)

    def procs_files(self) -> list[str]:
        return [f"{self._folder}/cgroup.procs"]

    def processes(self) -> list[int]:
        return files.numbers(self._folder / "cgroup.procs")

    def sample(self) -> Sample:
        events = files.table(self._folder / "memory.events")
        memory = files.number(self._folder / "memory.current")
        cpu = files.table(self._folder / "cpu.stat")
        statistics = files.table(self._folder / "memory.stat")
        return Sample(
            cpu_seconds=cpu.get("usage_usec", 0) / 1e6,
            user_cpu_seconds=cpu.get("user_usec", 0) / 1e6,
            memory_bytes=memory,
            # memory.peak exists since Linux 5.19.
            memory_peak_bytes=files.number(self._folder / "memory.peak") or memory,
            processes=files.number(self._folder / "pids.current"),
            anonymous_bytes=statistics.get("anon", 0),
            major_faults=statistics.get("pgmajfault", 0),
            oom_kills=events.get("oom_kill", 0),
        )

    def kill(self) -> int:
        # Count first: cgroup.kill does not report how many processes it killed.
        members = len(self.processes())
        try:
            # cgroup.kill exists since Linux 5.14. It also kills processes that are being forked.
            files.write(self._folder / "cgroup.kill", 1)
        except OSError:
            return super().kill()
        return members

    def remove(self) -> bool:
        return files.remove(self._folder)
