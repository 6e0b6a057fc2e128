"""When a running workload gives way to a larger attempt, and what is said about its size. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cloud_ml.domain.records import Decision, Event, Record
from cloud_ml.domain.workloads.actions import WorkloadAction
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.domain.workloads.spec import HasWorkload, WorkloadSpec
from cloud_ml.domain.workloads.worlds import World, count

_LOOK_AGAIN = timedelta(seconds=5)
"""How often somebody looks for a new checkpoint while there is room for more tasks."""


@dataclass(frozen=True)
class Growth:
    """There is room for ``world``; the newest complete checkpoint was saved at ``saved_at``."""

    world: World
    saved_at: datetime | None = None


def earliest(job: Record[HasWorkload, WorkloadStatus]) -> datetime | None:
    """When a job may become larger; ``None`` for at once."""
    last = job.status.resized_at
    wait = timedelta(seconds=job.spec.workload.elastic_every_s)
    return None if last is None else last + wait


def grow(
    job: Record[HasWorkload, WorkloadStatus], growth: Growth, now: datetime, grace_s: float
) -> Decision[WorkloadStatus, WorkloadAction]:
    """End a running attempt in favour of a larger one, if that loses little.

    Only a checkpoint of this very attempt shows that the next one goes on from about here. One that
    is older would have a job repeat the same work for ever.
    """
    status = job.status
    at = earliest(job)
    if at is not None and now < at:
        return Decision(requeue_at=at)
    begun = status.started_at or status.starting_at
    if growth.saved_at is None or begun is None or growth.saved_at <= begun:
        return Decision(requeue_at=now + _LOOK_AGAIN)
    sizes = _from_to(status.world, growth.world)
    return Decision(
        status=status.moved(
            Phase.STOPPING,
            reason=Reason.STOPPING,
            message=f"resizing {sizes}; waiting for the processes",
            next_world=dict(growth.world),
        ),
        events=[
            Event(
                now,
                Reason.STOPPING,
                f"to be resized {sizes}; its processes have {grace_s:g} s to end",
            )
        ],
    )


def restarting(status: WorkloadStatus, now: datetime) -> WorkloadStatus:
    """Nothing of the smaller attempt lives any more; the larger one is due."""
    message = f"resized {_from_to(status.world, status.next_world)}"
    return status.moved(Phase.RESTARTING, not_before=now, reason=Reason.RESIZED, message=message)


def with_world(status: WorkloadStatus, world: World, now: datetime) -> WorkloadStatus:
    """The status of an attempt that begins with these tasks."""
    resized = bool(status.world) and dict(world) != dict(status.world)
    return replace(
        status,
        world=dict(world),
        next_world={},
        resized_at=now if resized else status.resized_at,
    )


def changes(before: WorkloadStatus, world: World, now: datetime) -> list[Event]:
    """What there is to say if an attempt begins with other tasks than the one before had."""
    if not before.world or dict(before.world) == dict(world):
        return []
    return [Event(now, Reason.RESIZED, f"resized {_from_to(before.world, world)}")]


def with_tasks(workload: WorkloadSpec, world: World) -> str:
    """Such as `` with 2 of 8 tasks``; nothing for a workload that is not elastic."""
    return f" with {count(world)} of {workload.task_count} tasks" if world else ""


def _from_to(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """Such as ``from 2 to 4 tasks``."""
    return f"from {count(before)} to {count(after)} tasks"
