"""A controller over the fakes: store, objects and machine in memory, and jobs to follow to their
end.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cloud_ml.controller.executor import Executor
from cloud_ml.controller.model_services import ModelServiceController
from cloud_ml.controller.placement.scheduler import Scheduler
from cloud_ml.controller.programs.downloads import Downloads
from cloud_ml.controller.programs.packages import Packages
from cloud_ml.controller.programs.trainers import Trainers
from cloud_ml.controller.results.outputs import JobOutputs
from cloud_ml.controller.runtime.manager import ControllerManager
from cloud_ml.controller.runtime.term import ResourceController
from cloud_ml.controller.train_jobs import TrainJobController
from cloud_ml.domain.addresses import JobSocket
from cloud_ml.domain.jobs.kind import TRAIN_JOB, TrainJobRecord
from cloud_ml.domain.records import Kind
from cloud_ml.domain.services.kind import REPLICA
from cloud_ml.domain.services.routes import CallingKey, Figures, Route
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.domain.workloads.rules import Rules
from cloud_ml.engines.fake import FakeEngine, Machine
from cloud_ml.engines.gang import TrainerSource
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.objects.base import ObjectStore
from cloud_ml.objects.memory import MemoryObjectStore
from cloud_ml.recipes.choosing import RECIPES
from cloud_ml.settings import (
    ControllerSettings,
    GatewaySettings,
    OutputSettings,
    StorageSettings,
    TrainerSettings,
)
from cloud_ml.state.base import StateStore
from cloud_ml.state.memory import MemoryStateStore
from cloud_ml.usecases.access.identities import Identities, Identity
from cloud_ml.usecases.clock import system_clock
from cloud_ml.usecases.first_start import bootstrap
from cloud_ml.usecases.jobs.checkpoints import Checkpoints
from cloud_ml.usecases.jobs.output_collection import OutputCollection
from cloud_ml.usecases.jobs.outputs import Outputs
from cloud_ml.usecases.jobs.train_jobs import TrainJobs
from cloud_ml.usecases.models.deploying import Deployments
from cloud_ml.usecases.models.model_services import ModelServices
from cloud_ml.usecases.offload import Offload
from cloud_ml.usecases.storage.objects import Storage
from cloud_ml.usecases.storage.uploads import Uploads
from support.faulty import Faults
from support.outputs import Folders
from support.platform import FewFrameworks

SETTINGS = ControllerSettings(
    workers=3,
    poll_s=0.5,
    lease_ttl_s=1.0,
    backoff_first_s=0.01,
    backoff_longest_s=0.05,
    max_running_jobs=2,
)
_OPEN = 64
TRAINER = "fds://cloudml/t.tar.gz"


class Model:
    """What replicas run: nothing is fetched for it."""

    async def provide(self, job: TrainJobRecord) -> tuple[TrainJobRecord, TrainerSource]:
        return job, TrainerSource("0f" * 32, "model-server.whl")

    def forget(self, uid: str) -> None:
        """Nothing is under way."""

    async def tidy(self) -> None:
        """There is nothing."""


class AnsweringReplicas:
    """Replicas all of which say that their model is loaded."""

    def __init__(self) -> None:
        self._latest: deque[socket.socket] = deque()  # the far ends: open until the answer is read

    def close(self) -> None:
        while self._latest:
            self._latest.pop().close()

    async def open_connection(
        self, job_uid: str, name: str, *, limit: int = 65_536
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        near, far = socket.socketpair()
        if len(self._latest) == _OPEN:
            self._latest.popleft().close()
        far.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        self._latest.append(far)
        return await asyncio.open_unix_connection(sock=near, limit=limit)

    def address(self, job_uid: str, name: str) -> JobSocket:
        return JobSocket(job_uid, name)


class IdleGateway:
    """A gateway that is told, and that nobody calls."""

    def __init__(self) -> None:
        self.routes: dict[str, Route] = {}
        self.figures: Mapping[str, Figures] = {}
        self.unbound: Mapping[int, str] = {}

    def set(self, uid: str, route: Route) -> None:
        self.routes[uid] = route

    def drop(self, uid: str) -> None:
        self.routes.pop(uid, None)

    def keep(self, uids: Collection[str]) -> None:
        """It has no others."""

    def learn(self, keys: Mapping[str, CallingKey]) -> None:
        """Nobody calls."""

    async def settled(self) -> bool:
        return True

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        """It goes with the world."""


class World:
    """Store, objects and machine, which outlive any controller."""

    def __init__(
        self,
        folder: Path,
        objects: ObjectStore | None = None,
        *,
        store: StateStore | None = None,
    ) -> None:
        self.store = store or MemoryStateStore()
        self.objects = objects or MemoryObjectStore()
        self.machine = Machine()
        self.engine = FakeEngine(self.machine)
        self.offload = Offload(4)
        self.storage = Storage(self.store, self.objects, system_clock)
        self.identities = Identities(self.store, system_clock)
        first = bootstrap(self.identities, self.storage)
        assert first.admin is not None
        self.admin: Identity = first.admin
        self.checkpoints = Checkpoints(self.store, self.storage, self.objects)
        self.jobs = TrainJobs(
            self.store, self.storage, FewFrameworks(), system_clock, checkpoints=self.checkpoints
        )
        self.services = ModelServices(self.store, self.storage, system_clock)
        self.endpoints = AnsweringReplicas()
        self.gateway = IdleGateway()
        self.serving = GatewaySettings(kept_replicas=0)
        self.objects.put("cloudml", "t.tar.gz", b"code")
        self._folder = folder
        self.folders = Folders(folder / "jobs")

    @contextlib.asynccontextmanager
    async def controller(
        self,
        holder: str = "one",
        faults: Faults | None = None,
        start_timeout_s: float = 60.0,
        **settings: object,
    ) -> AsyncIterator[asyncio.Task[None]]:
        """A controller that runs for the length of the block, and is then dropped as by a crash.

        With ``faults`` each of its seams may be told to fail, and it looks after model services,
        too.
        """
        rules = Rules(stop_grace_s=0.05, start_timeout_s=start_timeout_s)
        controller_settings = replace(SETTINGS, **settings)  # type: ignore[arg-type]
        wrap = (faults or Faults()).wrap
        store, engine = wrap("store", self.store), wrap("engine", self.engine)
        storage = wrap("storage", self.storage)
        recipes = {name: wrap("recipe", each) for name, each in RECIPES.items()}

        def executor(
            files: object, kind: Kind[Any, WorkloadStatus], outputs: JobOutputs | None = None
        ) -> Executor[Any]:
            return Executor(
                store=store,
                storage=storage,
                engine=engine,
                recipes=recipes,
                files=wrap("files", files),
                offload=self.offload,
                network="none",
                kind=kind,
                outputs=outputs,
            )

        scheduler = Scheduler(
            store=store, engine=engine, settings=controller_settings, offload=self.offload
        )
        controllers: list[ResourceController] = [
            scheduler,
            TrainJobController(
                scheduler=scheduler,
                store=store,
                engine=engine,
                settings=controller_settings,
                executor=executor(self._trainers(storage, wrap), TRAIN_JOB, self._outputs(wrap)),
                rules=rules,
                clock=system_clock,
                offload=self.offload,
                deploy=wrap("deploy", Deployments(self.store, system_clock, keep=3)).deploy
                if faults
                else None,
            ),
        ]
        if faults is not None:
            controllers.append(ModelServiceController(
                scheduler=scheduler, store=store, engine=engine, endpoints=wrap("endpoints", self.endpoints),
                executor=executor(Model(), REPLICA), rules=rules, settings=controller_settings, clock=system_clock,
                offload=self.offload, gateway=wrap("gateway", self.gateway), serving=self.serving,
            ))  # fmt: skip
        controller = ControllerManager(
            controllers,
            store=store,
            engine=engine,
            settings=controller_settings,
            holder=holder,
            clock=system_clock,
            offload=self.offload,
        )
        running = asyncio.create_task(controller.run())
        try:
            yield running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            for _ in range(5):  # connections to replicas close in later turns of the loop
                await asyncio.sleep(0)
            self.endpoints.close()

    def _outputs(self, wrap: Callable[[str, Any], Any]) -> JobOutputs:
        store, outputs = wrap("store", self.store), Outputs(self.store, self.storage, self.objects)
        collection = OutputCollection(
            outputs, self.storage, self.objects, system_clock, OutputSettings()
        )
        return JobOutputs(
            engine=self.folders,
            store=store,
            outputs=outputs,
            collection=wrap("collection", collection),
            clock=system_clock,
            offload=self.offload,
        )

    def _trainers(self, storage: Storage, wrap: Callable[[str, Any], Any]) -> Trainers:
        packages = wrap(
            "packages", Packages(wrap("objects", self.objects), self._folder / "packages")
        )
        return Trainers(
            storage=storage,
            packages=packages,
            offload=self.offload,
            settings=TrainerSettings(),
            downloads=Downloads(self._folder / "packages", TrainerSettings(), self.offload),
            slow_copy_s=0.5,
            uploads=Uploads(
                self.storage, self.store, self.objects, system_clock, StorageSettings()
            ),
        )

    async def submit(
        self,
        name: str,
        *,
        caller: Identity | None = None,
        trainer_uri: str = TRAINER,
        **fields: object,
    ) -> str:
        job = TrainJob(name, "trainer.task", trainer_uri, **fields)  # type: ignore[arg-type]
        record = await self.offload(
            self.jobs.submit, caller or self.admin, job, await self.engine.capacity()
        )
        return record.key.uid

    def record(self, uid: str) -> TrainJobRecord | None:
        return self.store.get(TRAIN_JOB, uid)

    async def until(
        self, uid: str, holds: Callable[[TrainJobRecord | None], bool]
    ) -> TrainJobRecord | None:
        async with asyncio.timeout(60):
            while not holds(record := self.record(uid)):
                await asyncio.sleep(0.002)
        return record

    async def until_phase(self, uid: str, phase: Phase, attempt: int = 1) -> TrainJobRecord:
        record = await self.until(
            uid, lambda r: r is not None and (r.status.phase, r.status.attempt) == (phase, attempt)
        )
        assert record is not None
        return record
