"""Runs resource controllers for as long as this server leads. Names no kind of resource."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

from cloud_ml import failpoints
from cloud_ml.controller.runtime.changes import ChangeFeed, EngineChanges
from cloud_ml.controller.runtime.event_handlers import EventHandler
from cloud_ml.controller.runtime.failed_passes import FailedPasses
from cloud_ml.controller.runtime.leader import Leader
from cloud_ml.controller.runtime.leader_lock import LeaderLock
from cloud_ml.controller.runtime.queue import KeyedQueue
from cloud_ml.controller.runtime.reconciler import Reconciler
from cloud_ml.controller.runtime.term import ControllerTasks, ResourceController, Term
from cloud_ml.controller.runtime.worker_pool import WorkerPool
from cloud_ml.engines.base import Engine
from cloud_ml.errors import TryAgain
from cloud_ml.observability.metrics import Metrics, Reading
from cloud_ml.settings import ControllerSettings
from cloud_ml.state.base import Fence, StateStore
from cloud_ml.usecases.changes import ChangeHub
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.offload import Offload
from cloud_ml.usecases.short_reads import Reads

_TIDY_FIRST_S, _TIDY_PERIOD_S = 60.0, 3600.0
"""Not at once: what happened while no server led is more urgent."""
logger = logging.getLogger(__name__)


class ControllerManager:
    """Leads whenever the lease is to be had, and runs the controllers meanwhile.

    Args:
        controllers: What is run. A term begins with them in this order.
        store: Whose changes are followed, and where the lease is.
        engine: Whose changes are followed.
        settings: Times and numbers.
        holder: Names this server in the lease; a restarted one of the same name goes on where it
            was.
        clock: The time.
        offload: Runs the calls of the store.
        read: Reads the change feed.
        metrics: Told of passes.
        lock: See ``Leader``.
        hub: Told of changes that were read, while this server leads.
    """

    def __init__(
        self,
        controllers: Sequence[ResourceController],
        *,
        store: StateStore,
        engine: Engine,
        settings: ControllerSettings,
        holder: str,
        clock: Clock,
        offload: Offload,
        read: Reads | None = None,
        metrics: Metrics | None = None,
        lock: LeaderLock | None = None,
        hub: ChangeHub | None = None,
    ) -> None:
        self._controllers = controllers
        self._hub = hub
        self._store = store
        self._engine = engine
        self._settings = settings
        self._clock = clock
        self._offload = offload
        self._read = read
        self._leads = False
        self._metrics = metrics or Metrics()
        self._metrics.add(
            [
                Reading(
                    "cloudml_controller_leads",
                    "Whether this server leads.",
                    (),
                    self._whether_it_leads,
                )
            ]
        )
        self._leader = Leader(store, holder, settings.lease_ttl_s, clock, offload, lock=lock)

    async def run(
        self, around: Callable[[], AbstractAsyncContextManager[None]] = contextlib.nullcontext
    ) -> None:
        """Lead whenever the lease is to be had. Runs until cancelled.

        Args:
            around: Makes a block for each term: entered before the controllers begin, left when
                they have ended and before the lease is given back.
        """
        while True:
            async with self._leader.term() as (fence, lost):
                logger.info("controller leads", extra={"epoch": fence.epoch})
                failpoints.here("start.leads")
                try:
                    async with around():
                        await self._lead(fence, lost)
                except TryAgain:  # the store or the engine was away when the term began
                    logger.warning("the controller cannot lead now; trying again", exc_info=True)
                    await asyncio.sleep(self._settings.backoff_first_s)
            logger.warning("controller stepped down")

    async def _lead(self, fence: Fence, lost: asyncio.Event) -> None:
        term, work = Term(fence, self._pool), list[ControllerTasks]()
        tasks = list[asyncio.Task[object]]()
        self._leads = True
        try:
            for controller in self._controllers:
                work.append(await controller.begin(term))
            tasks += [asyncio.create_task(run()) for each in work for run in each.tasks]
            tasks.append(asyncio.create_task(self._follow_records(work)))
            tasks.append(asyncio.create_task(self._follow_engine(work)))
            tasks.append(asyncio.create_task(self._tidy(work)))
            over = asyncio.create_task(lost.wait())
            tasks.append(over)
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {over}:  # these run for ever: one that ended has failed
                task.result()
        finally:
            self._leads = False
            for task in tasks:
                task.cancel()
            # Wait for the tasks to end before closing what they use.
            await asyncio.gather(*tasks, return_exceptions=True)
            for each in work:
                each.end()

    def _pool(self, queue: KeyedQueue, reconciler: Reconciler) -> WorkerPool:
        return WorkerPool(
            queue,
            reconciler,
            failed=FailedPasses(self._store, self._settings, self._clock, self._offload),
            clock=self._clock,
            lost=self._leader.lose,
            observe=self._metrics.reconciles.observe,
            limit_s=self._settings.pass_limit_s,
        )

    async def _follow_records(self, work: Sequence[ControllerTasks]) -> None:
        for each in work:
            for prepare in each.before_changes:
                await prepare()
        handlers: dict[str, list[EventHandler]] = {}
        for each in work:
            for kind, handler in each.handlers.items():
                handlers.setdefault(kind, []).append(handler)
        feed = ChangeFeed(
            self._store,
            [followed for each in work for followed in each.followed],
            self._offload,
            self._settings.poll_s,
            read=self._read,
            handlers=handlers,
            handler_limit_s=self._settings.notice_limit_s,
            hub=self._hub,
            prepare=[prepare for each in work for prepare in each.prepare],
        )
        await feed.run()

    async def _follow_engine(self, work: Sequence[ControllerTasks]) -> None:
        await EngineChanges(
            self._engine, [claimed for each in work for claimed in each.gangs]
        ).run()

    async def _tidy(self, work: Sequence[ControllerTasks]) -> None:
        pause_s = _TIDY_FIRST_S
        while True:
            await asyncio.sleep(pause_s)
            pause_s = _TIDY_PERIOD_S
            for tidy in (self._prune, *(tidy for each in work for tidy in each.tidy)):
                try:
                    await tidy()
                except Exception:
                    logger.warning(
                        "what is old cannot be dropped now; trying again later", exc_info=True
                    )

    async def _prune(self) -> None:
        await self._offload(self._store.prune, self._clock())

    def _whether_it_leads(self) -> Mapping[tuple[str, ...], float]:
        return {(): float(self._leads)}
