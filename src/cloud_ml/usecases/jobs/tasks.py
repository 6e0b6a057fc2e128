"""What the tasks of a job use at this moment, from the engine's samples."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches

from cloud_ml.domain.observed import ObservedGang, ObservedProcess
from cloud_ml.domain.workloads.memory_growth import in_force
from cloud_ml.domain.workloads.phases import Phase, TaskStatus
from cloud_ml.domain.workloads.progress import Progress, part_done, remaining_s
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.domain.workloads.record import WorkloadRecord
from cloud_ml.domain.workloads.spec import WorkloadSpec
from cloud_ml.engines.abilities import Reports, Stacks, Usage, UsagePoint
from cloud_ml.engines.base import Engine
from cloud_ml.engines.gang import GangKey
from cloud_ml.errors import Conflict, NotFound
from cloud_ml.models.jobs.job import JobProgress, JobStacks, JobTask, JobTasks
from cloud_ml.usecases.jobs.members import addresses_of

_SHOWN = 20
_SEVERAL = 3
_MOST_DIGITS = 6
_BEFORE_CODE = (Phase.QUEUED, Phase.STARTING, Phase.RESTARTING)


async def tasks_of(record: WorkloadRecord, engine: Engine) -> JobTasks:
    """The tasks of the current attempt; none where the engine knows nothing of it yet."""
    attempt = record.status.attempt
    gang = await current_gang(record, engine)
    if gang is None:
        return JobTasks(attempt=attempt, items=[])
    samples = (
        await engine.usage(GangKey(record.key.uid, attempt)) if isinstance(engine, Usage) else ()
    )
    reports: Mapping[str, Progress] = {}
    if isinstance(engine, Reports):
        names = [process.name for process in gang.processes if process.running]
        reports = await engine.progress(GangKey(record.key.uid, attempt), names)
    there = {process.name for process in gang.processes}
    addresses = addresses_of(record)
    items = [
        _task_of_earlier(task)
        for task in record.status.tasks
        if task.reason == Reason.COMPLETED and task.name not in there
    ]
    items += [
        _task(record, gang, process, samples, process.progress or reports.get(process.name))
        for process in gang.processes
    ]
    placed = [replace(one, address=addresses.get(one.name, "")) for one in items]
    return JobTasks(attempt=attempt, stages=gang.stages, items=placed)


async def task_of(record: WorkloadRecord, engine: Engine, name: str) -> JobTask:
    """One task of the current attempt, also where the engine knows nothing of it yet.

    Raises:
        NotFound: The job has no such task.
    """
    check_task(record, name)
    found = (await tasks_of(record, engine)).items
    return next((one for one in found if one.name == name), JobTask(name=name, running=False))


async def dump_stacks(
    record: WorkloadRecord,
    engine: Engine,
    name: str | None,
    use_up: Callable[[], Awaitable[None]],
) -> JobStacks:
    """Have the tasks of the current attempt, or one of them, write the stacks of their threads to
    their logs.

    Args:
        record: The job.
        engine: Where it runs.
        name: The task; all if there is none.
        use_up: Notes that the request is carried out; may raise.

    Raises:
        NotFound: The job has no such task.
        Conflict: It does not run, or the engine cannot.
    """
    if name is not None:
        check_task(record, name)
    if not isinstance(engine, Stacks):
        raise Conflict("this engine cannot show the stacks of tasks", field="engine")
    gang = await current_gang(record, engine)
    processes = gang.processes if gang is not None and not gang.state.over else ()
    running = [one.name for one in processes if one.running and name in (None, one.name)]
    if not running:
        why = why_not_running(record, processes, name)
        raise Conflict(f"{why}; only what runs has stacks", field="phase")
    # Use up the token first, so that a retry after a crash does not dump the stacks twice.
    await use_up()
    await engine.dump_stacks(GangKey(record.key.uid, record.status.attempt), running)
    return JobStacks(attempt=record.status.attempt, tasks=running)


def why_not_running(
    record: WorkloadRecord, processes: Sequence[ObservedProcess], name: str | None
) -> str:
    """What is said of a task, or of all of them, that should run and does not."""
    found = [one for one in processes if name in (None, one.name)]
    starts = any(one.waiting or one.restarting for one in found)
    if record.status.phase in _BEFORE_CODE or starts:
        return f"{name or record.key.name} has not started yet; ask again when it runs"
    return f"{name or record.key.name} does not run"


async def current_gang(record: WorkloadRecord, engine: Engine) -> ObservedGang | None:
    """The current attempt, as far as the engine knows of it."""
    found = await engine.observed(record.key.uid)
    return next((one for one in found if one.attempt == record.status.attempt), None)


def check_task(record: WorkloadRecord, name: str) -> None:
    """Refuse a name that no task of the job has.

    Raises:
        NotFound: There is no such task.
    """
    if name not in record.spec.workload.tasks:
        raise NotFound(
            f"{record.key.name} has no task {name[:63]}",
            field="task",
            value=name[:63],
            allowed="one of " + ", ".join(record.spec.workload.tasks[:_SHOWN]),
            hint=f"Did you mean {suggestion}?"
            if (suggestion := suggest_task(record, name))
            else None,
        )


def suggest_task(record: WorkloadRecord, name: str) -> str:
    """The task that somebody may mean who names another, such as ``1`` for ``worker-1``."""
    tasks = record.spec.workload.tasks
    if name.isdecimal() and len(name) <= _MOST_DIGITS:
        numbered = [task for task in tasks if task.endswith(f"-{int(name)}")]
        return " or ".join(numbered[:_SEVERAL])
    return " or ".join(get_close_matches(name[:63], tasks, n=1))


def _task_of_earlier(task: TaskStatus) -> JobTask:
    """A task of an array that has completed in an earlier attempt."""
    return JobTask(
        name=task.name,
        running=False,
        reason=task.reason,
        message=task.message,
        restarts=task.restarts,
        last_end=task.last_end,
        last_reason=task.last_reason,
        last_exit_code=task.last_exit_code,
        last_signal=task.last_signal,
        started_at=task.started_at,
        finished_at=task.finished_at,
        exit_code=task.exit_code,
        node=task.node,
    )


def _task(
    record: WorkloadRecord,
    gang: ObservedGang,
    process: ObservedProcess,
    samples: Sequence[UsagePoint],
    progress: Progress | None,
) -> JobTask:
    task = _process_state(gang, process)
    task = _with_limits(task, record, process.role)
    task = _with_usage(task, process, [one for one in samples if one.process == process.name])
    return replace(task, progress=_progress(record, process, progress)) if progress else task


def _process_state(gang: ObservedGang, process: ObservedProcess) -> JobTask:
    """Whether the task runs, or how it has ended."""
    return JobTask(
        name=process.name,
        running=process.running and not gang.state.over,
        reason=process.reason.value if process.reason else "",
        message=process.message,
        restarting=process.restarting and not gang.state.over,
        restarts=process.restarts,
        last_end=process.last_end,
        last_reason=process.last_reason.value if process.last_reason else "",
        last_exit_code=process.last_exit_code,
        last_signal=process.last_signal,
        started_at=process.started_at,
        finished_at=process.finished_at,
        exit_code=process.exit_code,
        signal=process.signal,
        node=process.node or gang.node,
    )


def _with_limits(task: JobTask, record: WorkloadRecord, role_name: str) -> JobTask:
    roles = in_force(record.spec.workload, record.status).roles
    role = next((role for role in roles if role.name == role_name), None)
    if role is None:
        return task
    cpu_millis = role.resources.cpu_millis
    return replace(
        task,
        memory_limit_bytes=role.resources.memory_bytes,
        cpu_limit=cpu_millis / 1000 if cpu_millis else None,
    )


def _with_usage(task: JobTask, process: ObservedProcess, samples: Sequence[UsagePoint]) -> JobTask:
    """The task with what it uses: as last sampled, and peaks of all its samples."""
    peaks = [sample.memory_bytes for sample in samples] + [process.usage.memory_peak_bytes]
    task = replace(task, memory_peak_bytes=max(peaks) or None)
    if not samples:
        return task
    last = samples[-1]
    return replace(
        task,
        sampled_at=last.at,
        cores=last.cores,
        memory_bytes=last.memory_bytes,
        processes=last.processes,
    )


def _may_go_on(workload: WorkloadSpec) -> bool:
    """Whether the first attempt may begin from a checkpoint."""
    return bool(workload.restore_from or workload.checkpoint_folder)


def _progress(record: WorkloadRecord, process: ObservedProcess, progress: Progress) -> JobProgress:
    start = process.restored_from
    if start is None:
        # Where a later start, or a job that goes on from another one's checkpoint, began is not known.
        is_first = record.status.attempt == 1 and not process.restarts
        begun = 0.0 if is_first and not _may_go_on(record.spec.workload) else None
    else:
        begun = part_done(start.step, progress.of, None)
    remaining = None
    if process.running and process.started_at is not None and begun is not None:
        ran_s = (progress.at - process.started_at).total_seconds()
        remaining = remaining_s(progress, begun, ran_s)
    return JobProgress(**vars(progress), remaining_s=remaining)
