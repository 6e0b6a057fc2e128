"""Performs the actions of a decision: the only place where the controller reaches the engine."""

from __future__ import annotations

import logging
from pathlib import Path

from cloud_ml import failpoints
from cloud_ml.controller.trainers import Files
from cloud_ml.domain.jobs.decide import JobRecord
from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.jobs.phases import JobStatus
from cloud_ml.domain.jobs.spec import JobSpec
from cloud_ml.domain.records import Action, EnsureGang, Forget, Kind, StopGang
from cloud_ml.domain.tenancy import ORGANISATION, SYSTEM
from cloud_ml.engines.base import Engine, Gang, GangKey, Mount, Places, TrainerSource
from cloud_ml.errors import Unavailable
from cloud_ml.objects.base import LocalFolders, ObjectStore
from cloud_ml.recipes.base import PlanContext, Recipe
from cloud_ml.state.base import Fence, StateStore
from cloud_ml.usecases.offload import Offload
from cloud_ml.usecases.storage import Storage

logger = logging.getLogger(__name__)


class Executor:
    """Every action is idempotent and carries the attempt it belongs to."""

    def __init__(
        self,
        *,
        store: StateStore,
        objects: ObjectStore,
        storage: Storage,
        engine: Engine,
        recipe: Recipe,
        files: Files,
        offload: Offload,
        network: str,
        kind: Kind[JobSpec, JobStatus] = TRAIN_JOB,
    ) -> None:
        self._store = store
        self._objects = objects
        self._storage = storage
        self._engine = engine
        self._recipe = recipe
        self._files = files
        self._offload = offload
        self._network = network
        self._kind = kind

    async def perform(self, job: JobRecord, action: Action, fence: Fence) -> bool:
        """Do what was decided; ``False`` when something is on its way that it needs: look again soon.

        Raises:
            TryAgain: A part does not answer; the next pass tries again.
        """
        key = job.key
        if isinstance(action, EnsureGang):
            provided = await self._files.provide(job)
            if provided is None:
                return False
            job, trainer = provided
            places = self._engine.places(key.uid)
            gang = await self._offload(self._plan, job, action.attempt, places, trainer)
            failpoints.here("controller.ensure.before")
            await self._engine.ensure(gang)
            failpoints.here("controller.ensure.after")
        elif isinstance(action, StopGang):
            self._files.forget(key.uid)
            failpoints.here("controller.stop.before")
            await self._engine.stop(GangKey(key.uid, action.attempt), action.grace_s)
            failpoints.here("controller.stop.after")
        elif isinstance(action, Forget):
            failpoints.here("controller.forget.before")
            await self._engine.forget(key.uid)
            failpoints.here("controller.forget.between")
            await self._offload(self._store.delete, self._kind, key.uid, fence=fence)
            failpoints.here("controller.forget.after")
            logger.info("job deleted", extra={"job": key.name, "uid": key.uid})
        return True

    async def tidy(self) -> None:
        """Drop what nobody has used for long."""
        await self._files.tidy()

    def _plan(self, job: JobRecord, attempt: int, places: Places, trainer: TrainerSource) -> Gang:
        organisation = self._store.find(ORGANISATION, SYSTEM, job.key.org)
        if organisation is None:
            raise Unavailable(f"the organisation {job.key.org} of job {job.key.name} is gone")
        context = PlanContext(
            key=GangKey(job.key.uid, attempt),
            org=job.key.org,
            tenant=organisation.spec.number,
            job_name=job.key.name,
            places=places,
            mounts=self._mounts(job, places),
            trainer=trainer,
            network=self._network,
        )
        return self._recipe.plan(job.spec, context)

    def _mounts(self, job: JobRecord, places: Places) -> tuple[Mount, ...]:
        """Every bucket of the tenant under its name, and the job's own at a fixed place."""
        objects = self._objects
        if not isinstance(objects, LocalFolders):
            return ()
        names = [bucket.name for bucket in self._storage.buckets(job.key.org)]
        mounts = [Mount(str(objects.folder(name)), str(Path(places.storage) / name), writable=True) for name in names]
        own = job.spec.submitted.fds_bucket
        if own in names and own is not None:
            mounts.append(Mount(str(objects.folder(own)), places.fds, writable=True))
        return tuple(mounts)
