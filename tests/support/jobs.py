"""Records and observations of jobs, for tests of everything that decides about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from cloud_ml.domain.jobs.kind import TrainJobRecord
from cloud_ml.domain.jobs.spec import JobSpec, from_wire
from cloud_ml.domain.observed import GangState, ObservedGang, ObservedProcess
from cloud_ml.domain.records import Key, Record
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.domain.workloads.spec import Desired, change_workload
from cloud_ml.models.jobs.train_job import TrainJob

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def spec_of(name: str = "linear", *, desired: Desired = Desired.RUN, **fields: Any) -> JobSpec:
    """A job that is wanted in some way."""
    return with_desired(desired)(
        from_wire(TrainJob(name, "trainer.task", "fds://cloudml/t.tar.gz", **fields))
    )


def with_desired(desired: Desired) -> Callable[[JobSpec], JobSpec]:
    """A change of a spec, after which the job is wanted like this."""
    return lambda spec: change_workload(spec, lambda workload: workload.with_desired(desired))


def restarted_after(attempt: int) -> Callable[[JobSpec], JobSpec]:
    """A change of a spec, after which another attempt is to follow this one."""
    return lambda spec: change_workload(
        spec, lambda workload: replace(workload, restart_after=attempt)
    )


def job_in(
    phase: Phase = Phase.QUEUED,
    *,
    attempt: int = 1,
    uid: str = "u1",
    desired: Desired = Desired.RUN,
    deleting: bool = False,
    created_at: datetime = NOW,
    fields: dict[str, Any] | None = None,
    **status: Any,
) -> TrainJobRecord:
    """The record of a job in ``phase``."""
    return Record(
        key=Key("train_job", "default", f"job-{uid}", uid),
        owner="admin",
        generation=1,
        revision=1,
        created_at=created_at,
        updated_at=created_at,
        spec=spec_of(f"job-{uid}", desired=desired, **fields or {}),
        status=WorkloadStatus(phase=phase, attempt=attempt, **status),
        delete_requested_at=NOW if deleting else None,
    )


def gang_in(
    state: GangState,
    reason: Reason | None = None,
    message: str = "",
    *,
    attempt: int = 1,
    uid: str = "u1",
    processes: tuple[ObservedProcess, ...] = (),
    **facts: Any,
) -> ObservedGang:
    """An attempt as an engine reports it."""
    return ObservedGang(uid, attempt, state, reason, message, processes, **facts)
