"""What the engine found out about an attempt, as it is kept with the job."""

from __future__ import annotations

from dataclasses import replace

from cloud_ml.domain.observed import ObservedGang, ObservedProcess
from cloud_ml.domain.workloads.phases import TaskStatus, Usage, WorkloadStatus
from cloud_ml.domain.workloads.reasons import Reason


def with_findings(status: WorkloadStatus, gang: ObservedGang) -> WorkloadStatus:
    """The status with what the engine found out about the attempt."""
    decisive = decisive_process(gang)
    return replace(
        status,
        started_at=status.started_at or (decisive.started_at if decisive else None),
        exit_code=decisive.exit_code if decisive else None,
        signal=decisive.signal if decisive else None,
        node=gang.node,
        processor=gang.processor,
        runtime=gang.runtime,
        environment_lock=gang.environment_lock,
        trainer_digest=gang.trainer_digest,
        stages=dict(gang.stages),
        usage=_usage(gang) if gang.processes else status.usage,
        tasks=task_statuses(status, gang),
    )


def _usage(gang: ObservedGang) -> Usage:
    """What all tasks used together; of memory, the most that one had, since each has the limit."""
    used = [process.usage for process in gang.processes]
    return Usage(
        cpu_seconds=round(sum(one.cpu_seconds for one in used), 3),
        memory_bytes=max(one.memory_bytes for one in used),
        memory_peak_bytes=max(one.memory_peak_bytes for one in used),
        processes=sum(one.processes for one in used),
    )


def task_statuses(status: WorkloadStatus, gang: ObservedGang) -> tuple[TaskStatus, ...]:
    """The tasks of a gang of several, and those of an array that have completed in earlier
    attempts. Of a single one that never started again, the job's own fields say it all, unless the
    job has a world.
    """
    there = {one.name for one in gang.processes}
    done = [one for one in status.tasks if one.reason == Reason.COMPLETED and one.name not in there]
    alone = len(gang.processes) < 2 and not done and not status.world
    if alone and not any(one.restarts for one in gang.processes):
        return ()
    tasks = [*done, *(_task(one, gang) for one in gang.processes)]
    if done:
        tasks.sort(key=lambda one: int(one.name.rpartition("-")[2]))
    return tuple(tasks)


def _task(one: ObservedProcess, gang: ObservedGang) -> TaskStatus:
    return TaskStatus(
        one.name,
        running=one.running and not gang.state.over,
        reason=one.reason.value if one.reason else "",
        message=one.message,
        exit_code=one.exit_code,
        signal=one.signal,
        started_at=one.started_at,
        finished_at=one.finished_at,
        restarts=one.restarts,
        last_end=one.last_end,
        last_reason=one.last_reason.value if one.last_reason else "",
        last_exit_code=one.last_exit_code,
        last_signal=one.last_signal,
        restarting=one.restarting and not gang.state.over,
        node=one.node or gang.node,
    )


def decisive_process(gang: ObservedGang) -> ObservedProcess | None:
    """The process whose end explains the gang's: the one that it names, else the first that failed,
    else the first that completed, or the first of all.
    """
    if gang.succeeded:
        good = [p for p in gang.processes if p.reason is Reason.COMPLETED]
        return next(iter(good or gang.processes), None)
    failed = [p for p in gang.processes if p.reason not in (None, Reason.COMPLETED)]
    failed.sort(key=lambda p: (p.finished_at is None, p.finished_at))
    named = [p for p in failed if p.message and gang.message.startswith(p.message)]
    return next(iter(named or failed or gang.processes), None)
