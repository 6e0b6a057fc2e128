"""Starting one task of a job again because somebody wants it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from cloud_ml.domain.observed import ObservedProcess
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.domain.workloads.record import WorkloadRecord
from cloud_ml.domain.workloads.spec import Desired, RequestedRestart, WorkloadSpec
from cloud_ml.domain.workloads.worlds import within
from cloud_ml.engines.abilities import TaskRestarting
from cloud_ml.engines.base import Engine
from cloud_ml.engines.gang import GangKey
from cloud_ml.errors import Conflict
from cloud_ml.recipes.base import PlanContext
from cloud_ml.recipes.choosing import RECIPES
from cloud_ml.usecases.jobs.tasks import check_task, current_gang, why_not_running


def _runs(record: WorkloadRecord, process: ObservedProcess) -> bool:
    """Whether a process runs, or is about to, and is meant to."""
    workload = record.spec.workload
    to_run = workload.desired is Desired.RUN and record.delete_requested_at is None
    return to_run and (process.running or process.restarting)


async def requested_restart(record: WorkloadRecord, engine: Engine, task: str) -> RequestedRestart:
    """The request that a task of the current attempt starts again alone.

    Raises:
        NotFound: The job has no such task.
        Conflict: It does not run, the recipe cannot go on without it, or the engine cannot.
    """
    check_task(record, task)
    job = record.key.name
    gang = await current_gang(record, engine)
    processes = gang.processes if gang is not None and not gang.state.over else ()
    found = next((one for one in processes if one.name == task), None)
    if gang is None or found is None or not _runs(record, found):
        why = why_not_running(record, processes, task)
        raise Conflict(f"{why}; only a task that runs can be restarted", field="phase")
    if record.status.phase is not Phase.RUNNING:
        raise Conflict(
            f"{job} is {record.status.phase}; only a task that runs can be restarted", field="phase"
        )
    whole = f"restart all of its tasks: cloudml jobs restart {job}"
    if not isinstance(engine, TaskRestarting) or (refusal := engine.restart_refusal()):
        why = refusal if isinstance(engine, TaskRestarting) else "this engine restarts no tasks"
        raise Conflict(f"{task} cannot start again alone: {why}", field="engine", hint=whole)
    workload = record.spec.workload
    if task not in _able(record, engine, gang.runtime):
        raise Conflict(
            f"{task} cannot start again alone: with recipe {workload.recipe}, the other tasks "
            "would not go on",
            field="task",
            value=task,
            allowed="a task whose recipe lets it start again alone",
            hint=f"{whole}; code that can go on is submitted with --task-retries N",
        )
    return RequestedRestart(gang.attempt, task, found.requested_restarts + 1)


def with_restart(workload: WorkloadSpec, request: RequestedRestart) -> WorkloadSpec:
    """The workload with a further request. Those of earlier attempts, and an earlier one of the same
    task, are dropped.
    """
    others = (
        one
        for one in workload.requested_restarts
        if one.attempt == request.attempt and one.task != request.task
    )
    return replace(workload, requested_restarts=(*others, request))


def _able(record: WorkloadRecord, engine: Engine, runtime: str) -> Collection[str]:
    """The tasks that may start again alone, as the job's recipe plans them.

    Without automatic restarts (``task_retries`` is 0), they still may by hand.
    """
    workload, uid = within(record.spec.workload, record.status.world), record.key.uid
    retry = replace(workload.retry, task_retries=workload.retry.task_retries or None)
    tasks = workload.tasks
    context = PlanContext(
        key=GangKey(uid, record.status.attempt),
        org=record.key.org,
        tenant=0,
        job_name=record.key.name,
        places=engine.places(uid, tasks if record.status.ports else ()),
        mounts=(),
        trainer=None,
        network="",
        ports=record.status.ports,
    )
    planned = RECIPES[workload.recipe].plan(replace(workload, retry=retry), context)
    gang = planned.for_runtime(runtime)
    return () if gang is None else gang.restarts.tasks
