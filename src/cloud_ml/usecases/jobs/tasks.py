"""What the tasks of a job use at this moment, from the engine's samples."""

from __future__ import annotations

from collections.abc import Sequence

from cloud_ml.domain.observed import ObservedGang, ObservedProcess
from cloud_ml.domain.workloads.decide import WorkloadRecord
from cloud_ml.engines.base import Engine, GangKey, Usage, UsagePoint
from cloud_ml.models.job import JobTask, JobTasks


async def tasks_of(record: WorkloadRecord, engine: Engine) -> JobTasks:
    """The tasks of the current attempt; none where the engine knows nothing of it yet."""
    attempt = record.status.attempt
    gang = next(
        (one for one in await engine.observed(record.key.uid) if one.attempt == attempt), None
    )
    if gang is None:
        return JobTasks(attempt=attempt, items=[])
    samples = (
        await engine.usage(GangKey(record.key.uid, attempt)) if isinstance(engine, Usage) else ()
    )
    items = [_task(record, gang, process, samples) for process in gang.processes]
    return JobTasks(attempt=attempt, stages=gang.stages, items=items)


def _task(
    record: WorkloadRecord,
    gang: ObservedGang,
    process: ObservedProcess,
    samples: Sequence[UsagePoint],
) -> JobTask:
    own = [sample for sample in samples if sample.process == process.name]
    role = next((role for role in record.spec.workload.roles if role.name == process.role), None)
    cpu_millis = role.resources.cpu_millis if role else None
    last = own[-1] if own else None
    peaks = [sample.memory_bytes for sample in own] + [process.usage.memory_peak_bytes]
    return JobTask(
        name=process.name,
        running=process.running and not gang.state.over,
        started_at=process.started_at,
        finished_at=process.finished_at,
        exit_code=process.exit_code,
        signal=process.signal,
        sampled_at=last.at if last else None,
        cores=last.cores if last else None,
        memory_bytes=last.memory_bytes if last else None,
        memory_peak_bytes=max(peaks) or None,
        memory_limit_bytes=role.resources.memory_bytes if role else None,
        cpu_limit=cpu_millis / 1000 if cpu_millis else None,
        processes=last.processes if last else None,
    )
