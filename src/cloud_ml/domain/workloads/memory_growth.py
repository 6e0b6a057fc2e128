"""More memory for the next attempt, after one that needed more than its limit. Pure.

The limits in force are committed with the status of the attempt that they are for, so a crash in
between neither loses nor repeats the growth.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from cloud_ml.domain.observed import GangState, ObservedGang
from cloud_ml.domain.workloads.phases import WorkloadStatus
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.domain.workloads.record import WorkloadRecord
from cloud_ml.domain.workloads.spec import MemoryGrowth, Role, WorkloadSpec
from cloud_ml.domain.workloads.worlds import within
from cloud_ml.models.common import format_memory

_UNIT = 2**20
"""Limits are rounded up to whole MiB."""

MemoryLimits = Mapping[str, int]
"""Role → the memory limit of each of its tasks, in bytes."""


@dataclass(frozen=True)
class MoreMemory:
    """The limits of the next attempt, and for each role that grows the one before.

    ``refusal`` says why no attempt could ever have so much; empty if one could.
    """

    limits: MemoryLimits
    before: MemoryLimits
    refusal: str = ""

    @property
    def sentence(self) -> str:
        """Such as ``worker from 600M to 900M``."""
        return ", ".join(
            f"{role} from {format_memory(size)} to {format_memory(self.limits[role])}"
            for role, size in self.before.items()
        )


def with_memory(workload: WorkloadSpec, limits: MemoryLimits) -> WorkloadSpec:
    """The workload with the limits in force.

    An array whose tasks have more runs fewer of them at a time, so that together they need no more
    than before.
    """
    if not limits:
        return workload
    roles = tuple(_with_limit(role, limits.get(role.name)) for role in workload.roles)
    if not workload.is_array or workload.parallel is None:
        return replace(workload, roles=roles)
    before, now = workload.roles[0].resources.memory_bytes, roles[0].resources.memory_bytes
    parallel = workload.parallel
    if before and now:
        parallel = max(1, parallel * before // now)
    return replace(workload, roles=roles, parallel=parallel)


def in_force(workload: WorkloadSpec, status: WorkloadStatus) -> WorkloadSpec:
    """The workload as the attempt of a status has it: its tasks, with their limits."""
    return within(with_memory(workload, status.memory), status.world)


def reserve_memory(workload: WorkloadSpec, status: WorkloadStatus) -> WorkloadSpec:
    """The same with the tasks for which there is room already, if it is about to have more."""
    return within(with_memory(workload, status.memory), status.next_world or status.world)


def after_end(job: WorkloadRecord, observed: Sequence[ObservedGang]) -> MoreMemory | None:
    """What the next attempt of a job would have whose current one ended for lack of memory;
    ``None`` for any other, and where there is no more.
    """
    gang = next((one for one in observed if one.attempt == job.status.attempt), None)
    if gang is None or not gang.state.over or gang.reason is not Reason.OUT_OF_MEMORY:
        return None
    growth = job.spec.workload.retry.memory_growth
    if gang.state is GangState.TOMBSTONED or growth is None:
        return None
    roles = with_memory(job.spec.workload, job.status.memory).roles
    # Commands around the code run with the limits of the first task.
    short = _short_of_memory(gang) or {roles[0].name}
    return _grown(roles, growth, short, job.status.memory)


def most_reached(workload: WorkloadSpec) -> str:
    """Why there is no more memory although the workload may grow."""
    growth = workload.retry.memory_growth
    if growth is None or growth.most_bytes is None:
        return ""
    return f"restart.memory_most is {format_memory(growth.most_bytes)}"


def _with_limit(role: Role, limit: int | None) -> Role:
    if limit is None:
        return role
    return replace(role, resources=replace(role.resources, memory_bytes=limit))


def _short_of_memory(gang: ObservedGang) -> Collection[str]:
    """The roles with a task that had too little."""
    return {one.role for one in gang.processes if one.reason is Reason.OUT_OF_MEMORY}


def _grown(
    roles: Sequence[Role], growth: MemoryGrowth, short: Collection[str], limits: MemoryLimits
) -> MoreMemory | None:
    before, after = {}, dict(limits)
    for role in roles:
        size = role.resources.memory_bytes
        if role.name not in short or size is None:
            continue
        larger = math.ceil(size * growth.factor / _UNIT) * _UNIT
        if growth.most_bytes is not None:
            larger = min(larger, growth.most_bytes)
        if larger > size:
            before[role.name], after[role.name] = size, larger
    return MoreMemory(after, before) if before else None
