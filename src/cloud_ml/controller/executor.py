"""Performs the actions of a decision: the only place where the controller reaches the engine."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Generic, Protocol

from cloud_ml import failpoints
from cloud_ml.controller.runtime.passes import begin_step
from cloud_ml.controller.trainers import Files
from cloud_ml.domain.records import Kind, Record
from cloud_ml.domain.tenancy import ORGANISATION, SYSTEM
from cloud_ml.domain.workloads.actions import EnsureGang, Forget, StopGang, WorkloadAction
from cloud_ml.domain.workloads.phases import WorkloadStatus
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.domain.workloads.spec import W, W_contra
from cloud_ml.engines.base import Engine, Gang, GangKey, JobPaths, JobSecret, Mount, TrainerSource
from cloud_ml.errors import RequestError, Unavailable
from cloud_ml.recipes.base import PlanContext, Recipe
from cloud_ml.state.base import Fence, StateStore
from cloud_ml.usecases.jobs.output_collection import CollectedOutputs
from cloud_ml.usecases.offload import Offload
from cloud_ml.usecases.secrets import SecretProblem, Secrets
from cloud_ml.usecases.storage.buckets import LostBuckets
from cloud_ml.usecases.storage.objects import Storage

logger = logging.getLogger(__name__)


class Outputs(Protocol[W_contra]):
    """Keeps what workloads of a kind leave."""

    async def collect(self, job: Record[W_contra, WorkloadStatus]) -> CollectedOutputs | None:
        """Store it, before the end is committed; ``None`` while that goes on."""

    async def delete(self, job: Record[W_contra, WorkloadStatus]) -> bool:
        """Remove it; false while that goes on."""

    async def expire(self, fence: Fence) -> None:
        """Remove what is too old."""


class Executor(Generic[W]):
    """Every action is idempotent and carries the attempt it belongs to."""

    def __init__(
        self,
        *,
        store: StateStore,
        storage: Storage,
        engine: Engine,
        recipe: Recipe,
        files: Files[W],
        offload: Offload,
        network: str,
        kind: Kind[W, WorkloadStatus],
        outputs: Outputs[W] | None = None,
        secrets: Secrets | None = None,
    ) -> None:
        self._store = store
        self._storage = storage
        self._engine = engine
        self._recipe = recipe
        self._files = files
        self._offload = offload
        self._network = network
        self._kind = kind
        self._outputs = outputs
        self._secrets = secrets

    async def collect_outputs(self, job: Record[W, WorkloadStatus]) -> CollectedOutputs | None:
        """Store what a job left, before its end is committed; ``None`` while that goes on: look
        again soon.

        Raises:
            TryAgain: A part does not answer; the next pass tries again.
        """
        return CollectedOutputs() if self._outputs is None else await self._outputs.collect(job)

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
            places = self._engine.places(key.uid)
            gang = await self._offload(self._plan, job, action.attempt, places, trainer)
            begin_step("start the attempt")
            failpoints.here("controller.ensure.before")
            await self._engine.ensure(gang)
            failpoints.here("controller.ensure.after")
        elif isinstance(action, StopGang):
            self._files.forget(key.uid)
            begin_step("stop the attempt")
            failpoints.here("controller.stop.before")
            await self._engine.stop(GangKey(key.uid, action.attempt), action.grace_s)
            failpoints.here("controller.stop.after")
        elif isinstance(action, Forget):
            begin_step("remove what its attempts left")
            failpoints.here("controller.forget.before")
            if self._outputs is not None and not await self._outputs.delete(job):
                return False
            await self._engine.forget(key.uid)
            failpoints.here("controller.forget.between")
            begin_step("remove the record")
            await self._offload(self._store.delete, self._kind, key.uid, fence=fence)
            failpoints.here("controller.forget.after")
            logger.info("job deleted", extra={"job": key.name, "uid": key.uid})
        return True

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
            return job, TrainerSource("", "trainer", error.message, Reason.START_FAILED)

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
        mounts: tuple[Mount, ...] = ()
        try:
            mounts = self._mounts(job, places)
        except LostBuckets as lost:
            trainer = TrainerSource("", trainer.name, str(lost), Reason.START_FAILED)
        context = PlanContext(
            key=GangKey(job.key.uid, attempt),
            org=job.key.org,
            tenant=organisation.spec.number,
            job_name=job.key.name,
            places=places,
            mounts=mounts,
            trainer=trainer,
            network=self._network,
        )
        return replace(self._recipe.plan(job.spec.workload, context), secrets=secrets)

    def _mounts(self, job: Record[W, WorkloadStatus], places: JobPaths) -> tuple[Mount, ...]:
        """Every bucket of the tenant under its name, and the job's own at a fixed place."""
        buckets = self._storage.mountable(job.key.org)
        mounts = [Mount(name, f"{places.storage}/{name}", writable=True) for name in buckets]
        own = job.spec.workload.bucket
        if own is not None and own in buckets:
            mounts.append(Mount(own, places.fds, writable=True))
        return tuple(mounts)
