"""Version 1: a hierarchy for each controller."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from cloud_ml.engines.local.cgroups import files
from cloud_ml.engines.local.cgroups.base import CPU_PERIOD_US, Group, Hierarchy, Limits, Sample

CONTROLLERS = ("memory", "pids", "cpu", "cpuacct")
_TICKS = os.sysconf("SC_CLK_TCK")


class HierarchyV1(Hierarchy):
    """A folder of the same name in each of the memory, pids, cpu and cpuacct hierarchies."""

    version = 1

    def __init__(self, folders: dict[str, str]) -> None:
        self.folders = {controller: Path(folder) for controller, folder in folders.items()}

    def group(self, name: str) -> Group:
        return GroupV1(
            name, {controller: folder / name for controller, folder in self.folders.items()}
        )

    def make(self, name: str) -> Group:
        for folder in self.folders.values():
            (folder / name).mkdir(parents=True, exist_ok=True)
        return self.group(name)

    def names(self) -> list[str]:
        # The memory controller is always there (see finding.py); the other controllers may be
        # missing.
        return files.subfolders(self.folders["memory"])

    def remove(self) -> None:
        for folder in self.folders.values():
            with contextlib.suppress(OSError):
                folder.rmdir()

    def description(self) -> dict[str, str]:
        return {
            "version": "1",
            **{controller: str(folder) for controller, folder in self.folders.items()},
        }


class GroupV1(Group):
    """One task's folder in each hierarchy."""

    def __init__(self, name: str, folders: dict[str, Path]) -> None:
        self.name = name
        self._folders = folders

    def limit(self, limits: Limits) -> None:
        if limits.memory_bytes is not None:
            # In version 1, -1 means no limit; version 2 writes "max".
            self._limit_memory(limits.memory_bytes or -1)
        if limits.processes is not None and "pids" in self._folders:
            files.write(self._folders["pids"] / "pids.max", limits.processes)
        if limits.cpu_millis is not None and "cpu" in self._folders:
            cpu = self._folders["cpu"]
            quota = (
                # The kernel refuses a quota below one millisecond.
                max(1000, limits.cpu_millis * CPU_PERIOD_US // 1000) if limits.cpu_millis else -1
            )
            files.write(cpu / "cpu.cfs_quota_us", quota)
            # 1024 shares, the kernel's default, mean one core; the kernel's minimum is 2.
            files.write(cpu / "cpu.shares", max(2, (limits.cpu_millis or 1000) * 1024 // 1000))
        if limits.cpu_request_millis is not None and "cpu" in self._folders:
            shares = max(2, limits.cpu_request_millis * 1024 // 1000)
            files.write(self._folders["cpu"] / "cpu.shares", shares)

    def _limit_memory(self, most: int) -> None:
        """The limit with swap, if there is one, must never be less than without: one that rises
        is set there first.
        """
        names = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]
        if not (self._folders["memory"] / names[1]).exists():
            names.pop()
        try:
            for name in names:
                files.write(self._folders["memory"] / name, most)
        except OSError:
            if len(names) == 1:
                raise
            for name in reversed(names):
                files.write(self._folders["memory"] / name, most)

    def procs_files(self) -> list[str]:
        return [f"{folder}/cgroup.procs" for folder in self._folders.values()]

    def processes(self) -> list[int]:
        return files.numbers(self._folders["memory"] / "cgroup.procs")

    def sample(self) -> Sample:
        memory = self._folders["memory"]
        control = files.table(memory / "memory.oom_control")
        statistics = files.table(memory / "memory.stat")
        accounting = self._folders.get("cpuacct", memory)
        return Sample(
            # cpuacct.usage is in nanoseconds, cpuacct.stat in clock ticks.
            cpu_seconds=files.number(accounting / "cpuacct.usage") / 1e9,
            user_cpu_seconds=files.table(accounting / "cpuacct.stat").get("user", 0) / _TICKS,
            memory_bytes=files.number(memory / "memory.usage_in_bytes"),
            memory_peak_bytes=files.number(memory / "memory.max_usage_in_bytes"),
            processes=files.number(self._folders["pids"] / "pids.current")
            if "pids" in self._folders
            else 0,
            anonymous_bytes=statistics.get("total_rss", 0),
            # memory.failcnt stays 0 on newer kernels.
            major_faults=statistics.get("total_pgmajfault", 0),
            oom_kills=control.get("oom_kill", 0),
        )

    def remove(self) -> bool:
        left = [folder for folder in self._folders.values() if not files.remove(folder)]
        return not left
