"""The resource controller of TensorBoards, which live like jobs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator

from cloud_ml.controller.executor import Executor
from cloud_ml.controller.placement.scheduler import Scheduler
from cloud_ml.controller.placement.slot_loading import fill
from cloud_ml.controller.reconcilers.workload import WorkloadReconciler
from cloud_ml.controller.routing.application_routes import ApplicationRoutes
from cloud_ml.controller.routing.gateway import Gateway
from cloud_ml.controller.runtime.changes import WatchedKind
from cloud_ml.controller.runtime.queue import KeyedQueue
from cloud_ml.controller.runtime.reconciler import ReconcileResult
from cloud_ml.controller.runtime.term import ControllerTasks, Term
from cloud_ml.controller.tensorboard_mirrors import TensorBoardMirrors
from cloud_ml.domain.records import Event
from cloud_ml.domain.tensorboards.spec import TENSORBOARD, TensorBoardRecord, TensorBoardSpec
from cloud_ml.domain.workloads.phases import UNFINISHED
from cloud_ml.domain.workloads.rules import Rules
from cloud_ml.domain.workloads.spec import Desired
from cloud_ml.engines.abilities import Endpoints
from cloud_ml.engines.base import Engine
from cloud_ml.errors import NotFound, TryAgain
from cloud_ml.models.common import duration_text
from cloud_ml.settings.applications import ApplicationSettings
from cloud_ml.state.base import StateStore
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.offload import Offload
from cloud_ml.usecases.short_reads import Reads

_MOST = 1_000
"""TensorBoards that may run at once; memory and quotas are reached sooner."""
_PAGE = 1000
_REACHABLE_S = 5.0
_WORKERS = 2
logger = logging.getLogger(__name__)


class TensorBoardController:
    """Moves TensorBoards, tells the gateway of them, and pauses those that nobody looks at."""

    def __init__(
        self,
        *,
        scheduler: Scheduler,
        store: StateStore,
        engine: Engine,
        endpoints: Endpoints,
        executor: Executor[TensorBoardSpec],
        rules: Rules,
        clock: Clock,
        offload: Offload,
        gateway: Gateway,
        settings: ApplicationSettings,
        mirrors: TensorBoardMirrors,
        read: Reads | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._store = store
        self._engine = engine
        self._endpoints = endpoints
        self._executor = executor
        self._rules = rules
        self._clock = clock
        self._offload = offload
        self._gateway = gateway
        self._settings = settings
        self._mirrors = mirrors
        self._read = read or offload
        self._routes: ApplicationRoutes | None = None

    async def reachable(self, uid: str) -> None:
        """Wait a moment until the gateway serves a TensorBoard.

        Returns at once where another server leads: that one tells the gateway, usually within a
        second.
        """
        if self._routes is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_REACHABLE_S):
                await self._routes.settled(uid)

    async def begin(self, term: Term) -> ControllerTasks:
        """See ``ResourceController``."""
        queue = KeyedQueue()
        slots = await self._scheduler.line("tensorboard", queue.add, most=_MOST)
        await fill(slots, self._store, TENSORBOARD, self._offload)
        routes = self._routes = ApplicationRoutes(
            self._gateway,
            self._endpoints,
            port=self._settings.port,
            idle_s=self._settings.idle_s,
            change=self._want,
        )
        workload = WorkloadReconciler(
            store=self._store,
            engine=self._engine,
            executor=self._executor,
            slots=slots,
            rules=self._rules,
            clock=self._clock,
            offload=self._offload,
            read=self._read,
            fence=term.fence,
            kind=TENSORBOARD,
        )
        reconciler = TensorBoardReconciler(workload, routes, self._mirrors, self._store, self._read)
        pool = term.pool(queue, reconciler)
        loop = asyncio.get_running_loop()

        def prepare() -> None:
            # This runs in a thread, and ``routes`` belongs to the event loop.
            loop.call_soon_threadsafe(routes.begin, list(self._everything()))

        def end() -> None:
            self._routes = None

        return ControllerTasks(
            followed=[WatchedKind(TENSORBOARD, queue, UNFINISHED)],
            gangs=[(queue, slots.holds)],
            prepare=[prepare],
            tasks=[
                routes.run,
                self._mirrors.run,
                *[pool.work] * _WORKERS,
            ],
            end=end,
        )

    async def _want(self, uid: str, desired: Desired) -> None:
        """Pause a TensorBoard, or let it run again."""
        now = self._clock()
        if desired is Desired.PAUSED:
            idle = duration_text(int(self._settings.idle_s))
            event = Event(now, "Idle", f"nobody has looked for {idle}; the next request starts it")
        else:
            event = Event(now, "Woken", "somebody looks at it")
        with contextlib.suppress(NotFound):  # it was deleted in the meantime
            await self._offload(
                self._store.change_spec,
                TENSORBOARD,
                uid,
                lambda spec: spec.with_workload(spec.workload.with_desired(desired)),
                now=now,
                events=[event],
            )

    def _everything(self) -> Iterator[TensorBoardRecord]:
        after: int | None = None
        while True:
            page = self._store.list(TENSORBOARD, after=after, limit=_PAGE)
            for line in page.items:
                try:
                    record = self._store.get(TENSORBOARD, line.key.uid)
                except TryAgain:
                    raise
                except Exception:  # its own pass says what is wrong
                    logger.exception("a TensorBoard cannot be read", extra={"uid": line.key.uid})
                    continue
                if record is not None:
                    yield record
            if (after := page.next) is None:
                return


class TensorBoardReconciler:
    """A look at a TensorBoard: that at its workload, and the gateway knows of it before and
    after. So no request goes to one that is about to pause.
    """

    def __init__(
        self,
        workload: WorkloadReconciler[TensorBoardSpec],
        routes: ApplicationRoutes,
        mirrors: TensorBoardMirrors,
        store: StateStore,
        read: Reads,
    ) -> None:
        self._workload = workload
        self._routes = routes
        self._mirrors = mirrors
        self._store = store
        self._read = read

    async def reconcile(self, uid: str) -> ReconcileResult:
        """See ``Reconciler``."""
        await self._show(uid)
        result = await self._workload.reconcile(uid)
        await self._show(uid)
        return result

    def step_aside(self, uid: str) -> None:
        """See ``Reconciler``."""
        self._workload.step_aside(uid)

    async def _show(self, uid: str) -> None:
        record = await self._read(self._store.get, TENSORBOARD, uid)
        if record is None:
            self._mirrors.drop(uid)
            self._routes.drop(uid)
        else:
            self._mirrors.show(record)
            await self._routes.show(record)
