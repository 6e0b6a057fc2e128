"""Performs the actions of a decision: the only place where the controller reaches the engine."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Generic, Protocol

from cloud_ml import failpoints
from cloud_ml.controller.programs.trainers import Files
from cloud_ml.controller.runtime.passes import begin_step
from cloud_ml.domain.records import Kind, Record
from cloud_ml.domain.tenancy import ORGANISATION, SYSTEM
from cloud_ml.domain.workloads import checkpoints
from cloud_ml.domain.workloads.actions import (
    EnsureGang,
    Forget,
    RestartTask,
    StopGang,
    WorkloadAction,
)
from cloud_ml.domain.workloads.memory_growth import in_force
from cloud_ml.domain.workloads.phases import WorkloadStatus
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.domain.workloads.spec import W, W_contra
from cloud_ml.domain.workloads.worlds import within
from cloud_ml.engines.abilities import TaskRestarting
from cloud_ml.engines.base import Engine, JobPaths
from cloud_ml.engines.gang import Gang, GangKey, JobSecret, Mount, TrainerSource
from cloud_ml.errors import RequestError, Unavailable
from cloud_ml.models.common import split_uri
from cloud_ml.recipes.base import PlanContext, Recipe
from cloud_ml.state.base import Fence, StateStore
from cloud_ml.usecases.jobs.output_collection import CollectedOutputs
from cloud_ml.usecases.offload import Offload
from cloud_ml.usecases.secrets import SecretProblem, Secrets
from cloud_ml.usecases.storage.buckets import LostBuckets
from cloud_ml.usecases.storage.objects import Storage
from cloud_ml.usecases.tracking.job_variables import AttemptVariables, sets_tracking

logger = logging.getLogger(__name__)


class Outputs(Protocol[W_contra]):
    """Keeps what workloads of a kind leave."""

    async def collect(self, job: Record[W_contra, WorkloadStatus]) -> CollectedOutputs | None:
        """Store it, before the end is committed; ``None`` while that goes on."""

    async def delete(self, job: Record[W_contra, WorkloadStatus]) -> bool:
        """Remove it; false while that goes on."""

    async def expire(self, fence: Fence) -> None:
        """Remove what is too old."""


class Checkpoints(Protocol[W_contra]):
    """Knows what workloads of a kind go on from. Blocking."""

    def newest(self, job: Record[W_contra, WorkloadStatus], /) -> str:
        """The path of the newest one that is complete, in its folder; empty without one."""

    def newest_noted(
        self, job: Record[W_contra, WorkloadStatus], /
    ) -> checkpoints.NotedCheckpoint | None:
        """The same with its step, and when it was saved."""


class Executor(Generic[W]):
    """Every action is idempotent and carries the attempt it belongs to.

    ``before_end`` is awaited before the outputs of a workload are stored, again and again until it
    returns true. What is ``offline`` runs without a network, as ``Gang`` says. Without ``mounts``,
    it sees no bucket.
    """

    def __init__(
        self,
        *,
        store: StateStore,
        storage: Storage,
        engine: Engine,
        recipes: Mapping[str, Recipe],
        files: Files[W],
        offload: Offload,
        network: str,
        kind: Kind[W, WorkloadStatus],
        outputs: Outputs[W] | None = None,
        checkpoints: Checkpoints[W] | None = None,
        secrets: Secrets | None = None,
        before_end: Callable[[Record[W, WorkloadStatus]], Awaitable[bool]] | None = None,
        variables: AttemptVariables | None = None,
        offline: bool = False,
        mounts: bool = True,
    ) -> None:
        self._store = store
        self._storage = storage
        self._engine = engine
        self._recipes = recipes
        self._files = files
        self._offload = offload
        self._network = network
        self._kind = kind
        self._outputs = outputs
        self._checkpoints = checkpoints
        self._secrets = secrets
        self._before_end = before_end
        self._variables = variables
        self._offline = offline
        self._mounts = mounts

    async def collect_outputs(self, job: Record[W, WorkloadStatus]) -> CollectedOutputs | None:
        """Store what a job left, before its end is committed; ``None`` while that goes on: look
        again soon.

        Raises:
            TryAgain: A part does not answer; the next pass tries again.
        """
        if self._before_end is not None:
            begin_step("collect what it has left")
            if not await self._before_end(job):
                return None
        return CollectedOutputs() if self._outputs is None else await self._outputs.collect(job)

    async def newest_checkpoint(
        self, job: Record[W, WorkloadStatus]
    ) -> checkpoints.NotedCheckpoint | None:
        """The newest complete checkpoint of a job; ``None`` without one."""
        if self._checkpoints is None:
            return None
        return await self._offload(self._checkpoints.newest_noted, job)

    def keeps_ports(self, job: Record[W, WorkloadStatus]) -> bool:
        """Whether the next attempt of a job can have the ports of the last one. It cannot if
        another process had one of them.
        """
        recipe = self._recipes[job.spec.workload.recipe]
        return not job.status.port_conflicts and recipe.keeps_ports(job.status.runtime)

    async def perform(
        self, job: Record[W, WorkloadStatus], action: WorkloadAction, fence: Fence
    ) -> bool:
        """Do what was decided; ``False`` when something is on its way that it needs: look again
        soon.

        Raises:
            TryAgain: A part does not answer; the next pass tries again.
        """
        key = job.key
        if isinstance(action, EnsureGang):
            begin_step("fetch what it runs")
            provided = await self._provide(job)
            if provided is None:
                return False
            job, trainer = provided
            begin_step("plan the attempt")
            tasks = within(job.spec.workload, job.status.world).tasks
            places = self._engine.places(key.uid, tasks if job.status.ports else ())
            gang = await self._offload(self._plan, job, action.attempt, places, trainer)
            begin_step("start the attempt")
            failpoints.here("controller.ensure.before")
            await self._engine.ensure(gang)
            failpoints.here("controller.ensure.after")
        elif isinstance(action, StopGang):
            # Cancel a download of the trainer that is still running.
            self._files.forget(key.uid)
            begin_step("stop the attempt")
            failpoints.here("controller.stop.before")
            await self._engine.stop(GangKey(key.uid, action.attempt), action.grace_s, action.why)
            failpoints.here("controller.stop.after")
        elif isinstance(action, RestartTask):
            await self._restart_task(key.uid, action)
        elif isinstance(action, Forget):
            begin_step("remove what its attempts left")
            failpoints.here("controller.forget.before")
            if self._outputs is not None and not await self._outputs.delete(job):
                return False
            # Remove the record last: as long as it exists, the whole action is repeated after a
            # crash.
            await self._engine.forget(key.uid)
            failpoints.here("controller.forget.between")
            begin_step("remove the record")
            await self._offload(self._store.delete, self._kind, key.uid, fence=fence)
            failpoints.here("controller.forget.after")
            logger.info("job deleted", extra={"job": key.name, "uid": key.uid})
        return True

    async def _restart_task(self, uid: str, action: RestartTask) -> None:
        if not isinstance(self._engine, TaskRestarting):
            return
        begin_step("start a task again")
        failpoints.here("task_restart.order.before")
        await self._engine.restart_task(
            GangKey(uid, action.attempt), action.task, action.number, action.grace_s
        )
        failpoints.here("task_restart.order.after")

    async def tidy(self, fence: Fence) -> None:
        """Drop what nobody has used for long, and outputs that are too old."""
        await self._files.tidy()
        if self._outputs is not None:
            await self._outputs.expire(fence)

    async def _provide(
        self, job: Record[W, WorkloadStatus]
    ) -> tuple[Record[W, WorkloadStatus], TrainerSource] | None:
        """What the job runs. A refusal that a later pass would only meet again fails the attempt
        with its words.
        """
        try:
            return await self._files.provide(job)
        except RequestError as error:
            return job, TrainerSource("", "trainer", error.user_message, Reason.START_FAILED)

    def _plan(
        self, job: Record[W, WorkloadStatus], attempt: int, places: JobPaths, trainer: TrainerSource
    ) -> Gang:
        organisation = self._store.find(ORGANISATION, SYSTEM, job.key.org)
        if organisation is None:
            raise Unavailable(f"the organisation {job.key.org} of job {job.key.name} is gone")
        secrets: tuple[JobSecret, ...] = ()
        if self._secrets is not None and not trainer.problem:
            try:
                secrets = self._secrets.values(job.key.org, job.spec.workload.secrets)
            except SecretProblem as missing:
                trainer = TrainerSource("", trainer.name, str(missing), missing.reason)
        buckets: Sequence[str] = ()
        try:
            if self._mounts:
                buckets = self._storage.mountable(job.key.org)
        except LostBuckets as lost:
            trainer = TrainerSource("", trainer.name, str(lost), Reason.START_FAILED)
        mounts = _mounts(job, places, buckets)
        folder = ""
        if self._checkpoints is not None:
            default = organisation.spec.default_bucket
            folder = _checkpoint_folder(job, mounts, places, default)
            if not folder and (chosen := job.spec.workload.checkpoint_folder):
                problem = f"there is no bucket for checkpoint.path, which is {chosen}"
                trainer = TrainerSource("", trainer.name, problem, Reason.START_FAILED)
        context = PlanContext(
            key=GangKey(job.key.uid, attempt),
            org=job.key.org,
            tenant=organisation.spec.number,
            job_name=job.key.name,
            places=places,
            mounts=mounts,
            trainer=trainer,
            network=self._network,
            ports=job.status.ports,
            checkpoints=folder,
            restore_from=self._restore_from(job, attempt, folder),
            completed=tuple(
                task.name for task in job.status.tasks if task.reason == Reason.COMPLETED
            ),
        )
        workload = in_force(job.spec.workload, job.status)
        planned = self._recipes[workload.recipe].plan(workload, context)
        planned = replace(
            planned,
            secrets=secrets,
            elastic=job.spec.workload.is_elastic,
            offline=self._offline,
        )
        planned = planned.with_used_restarts(job.status.task_restarts_used)
        return self._with_variables(planned)

    def _with_variables(self, gang: Gang) -> Gang:
        """The gang with the variables of its attempt, in processes that log nowhere else."""
        if self._variables is None:
            return gang
        variables = self._variables(gang.key.job_uid, gang.key.attempt)
        secret = {one.variable for one in gang.secrets}
        processes = tuple(
            one
            if sets_tracking({*one.environment, *secret})
            else replace(one, environment={**variables, **one.environment})
            for one in gang.processes
        )
        return replace(gang, processes=processes) if variables else gang

    def _restore_from(self, job: Record[W, WorkloadStatus], attempt: int, folder: str) -> str:
        workload = job.spec.workload
        # A folder that the job has chosen may have checkpoints of earlier jobs.
        begins_anew = attempt == 1 and (not workload.checkpoint_folder or workload.restore_from)
        if begins_anew or not folder or self._checkpoints is None:
            return ""
        newest = self._checkpoints.newest(job)
        return f"{folder}/{newest}" if newest else ""


def _checkpoint_folder(
    job: Record[W, WorkloadStatus], mounts: Sequence[Mount], places: JobPaths, default: str
) -> str:
    """Where processes see the folder for checkpoints; empty if its bucket is not there."""
    there = {mount.bucket for mount in mounts}
    if chosen := job.spec.workload.checkpoint_folder:
        bucket, folder = split_uri(chosen)
    else:
        bucket = checkpoints.bucket_of(job.spec.workload.bucket, default, there)
        folder = checkpoints.folder_of(job.key.name, job.key.uid)
    return f"{places.storage}/{bucket}/{folder}" if bucket in there else ""


def _mounts(
    job: Record[W, WorkloadStatus], places: JobPaths, buckets: Sequence[str]
) -> tuple[Mount, ...]:
    """Every bucket of the tenant under its name, and the job's own at a fixed place; or those
    that the workload may only read.
    """
    if reads_only := job.spec.workload.reads_only:
        return tuple(
            Mount(name, f"{places.storage}/{name}", writable=False)
            for name in buckets
            if name in reads_only
        )
    mounts = [Mount(name, f"{places.storage}/{name}", writable=True) for name in buckets]
    own = job.spec.workload.bucket
    if own is not None and own in buckets:
        mounts.append(Mount(own, places.fds, writable=True))
    return tuple(mounts)
