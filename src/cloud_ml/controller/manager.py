"""Runs the controller: a term of leadership at a time, with sources that queue and workers that reconcile."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
from collections.abc import Callable, Mapping

from cloud_ml import failpoints
from cloud_ml.controller.executor import Executor
from cloud_ml.controller.quotas import QuotaBook
from cloud_ml.controller.reconcilers.train_job import TrainJobReconciler
from cloud_ml.controller.runtime.crew import Crew, Reconciler
from cloud_ml.controller.runtime.failed_passes import FailedPasses
from cloud_ml.controller.runtime.leader import Leader
from cloud_ml.controller.runtime.queue import KeyedQueue
from cloud_ml.controller.runtime.sources import EngineSource, Followed, StoreSource
from cloud_ml.controller.services import Services
from cloud_ml.controller.slots import PLACED, Slots, fill
from cloud_ml.domain.jobs.decide import JobRecord, Rules
from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.jobs.phases import Phase
from cloud_ml.domain.quotas import QUOTA, QuotaSpec
from cloud_ml.domain.records import Event
from cloud_ml.domain.tenancy import ORGANISATION, SYSTEM
from cloud_ml.engines.base import Engine
from cloud_ml.errors import TryAgain
from cloud_ml.observability.metrics import Family, Metrics, Reading
from cloud_ml.settings import ControllerSettings
from cloud_ml.state.base import Fence, StateStore
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.offload import Offload
from cloud_ml.usecases.short_reads import Reads

_JOBS_PER_CORE = 4
_PRUNE_FIRST_S, _PRUNE_PERIOD_S = 60.0, 3600.0
"""Not at once: what happened while no server led is more urgent."""
_UNLIMITED = QuotaSpec()
logger = logging.getLogger(__name__)


class Controller:
    """Moves every job towards what is wanted, for as long as ``run`` runs and the lease is ours."""

    def __init__(
        self,
        *,
        store: StateStore,
        engine: Engine,
        executor: Executor,
        settings: ControllerSettings,
        rules: Rules,
        holder: str,
        clock: Clock,
        offload: Offload,
        read: Reads | None = None,
        default_quota: QuotaSpec = _UNLIMITED,
        metrics: Metrics | None = None,
        services: Services | None = None,
        deploy: Callable[[JobRecord], Event | None] | None = None,
    ) -> None:
        self._store = store
        self._engine = engine
        self._executor = executor
        self._settings = settings
        self._rules = rules
        self._default_quota = default_quota
        self._clock = clock
        self._offload = offload
        self._read = read or offload
        self._services = services
        self._deploy = deploy
        self._queue: KeyedQueue | None = None
        self._metrics = metrics or Metrics()
        self._metrics.add(self._figures())
        self._leader = Leader(store, holder, settings.lease_ttl_s, clock, offload)

    async def run(self) -> None:
        """Lead whenever the lease is to be had. Runs until cancelled."""
        while True:
            async with self._leader.term() as (fence, lost):
                logger.info("controller leads", extra={"epoch": fence.epoch})
                failpoints.here("start.leads")
                try:
                    await self._lead(fence, lost)
                except TryAgain:  # the store or the engine was away when the term began
                    logger.warning("the controller cannot lead now; trying again", exc_info=True)
                    await asyncio.sleep(self._settings.backoff_first_s)
            logger.warning("controller stepped down")

    async def _lead(self, fence: Fence, lost: asyncio.Event) -> None:
        queue = self._queue = KeyedQueue()
        book = QuotaBook(self._store, self._default_quota)

        async def reread(uid: str) -> None:
            if (org := await self._offload(book.read, uid)) is not None:
                slots.quota_changed(org)
                if self._services is not None:
                    self._services.quota_changed(org)

        async def organisations_changed(_: str) -> None:
            slots.reserve(await self._offload(self._reserved))

        lines: list[Slots] = []
        slots = await self._slots(queue, book, lines)
        crew = self._crew(queue, self._reconciler(slots, fence))
        services = [await self._services.lead(fence, self._crew, book, lines)] if self._services is not None else []
        source = StoreSource(
            self._store,
            [Followed(TRAIN_JOB, queue), *(kind for led in services for kind in led.followed)],
            self._offload,
            self._settings.poll_s,
            read=self._read,
            notices={QUOTA.name: reread, ORGANISATION.name: organisations_changed}
            | {kind: told for led in services for kind, told in led.notices.items()},
            prepare=[book.load, *(led.prepare for led in services)],
        )
        gangs = EngineSource(self._engine, [(queue, slots), *(led.gangs for led in services)])
        tasks = [
            asyncio.create_task(self._follow(source, slots)),
            asyncio.create_task(gangs.run()),
            asyncio.create_task(self._prune(fence)),
            *(asyncio.create_task(crew.work()) for _ in range(self._settings.workers)),
            *(asyncio.create_task(each) for led in services for each in led.tasks),
        ]
        over = asyncio.create_task(lost.wait())
        try:
            done, _ = await asyncio.wait([*tasks, over], return_when=asyncio.FIRST_COMPLETED)
            for task in done - {over}:  # these run for ever: one that ended has failed
                task.result()
        finally:
            self._queue = None
            for task in (*tasks, over):
                task.cancel()
            await asyncio.gather(*tasks, over, return_exceptions=True)

    async def _slots(self, queue: KeyedQueue, book: QuotaBook, lines: list[Slots]) -> Slots:
        """The places as they are taken. Who has one is looked at first, however long the line: it may have ended."""
        slots = Slots(self._most, await self._engine.capacity(), queue.add, book, beside=lines, opened=False)
        await self._offload(book.load)
        slots.reserve(await self._offload(self._reserved))
        for uid in await fill(slots, self._store, TRAIN_JOB, self._offload, PLACED):
            queue.add(uid)
        return slots

    @property
    def _most(self) -> int:
        return most_jobs(self._settings)

    def _reserved(self) -> int:
        """How many places are kept for organisations that hold none: where there is one organisation only, none."""
        several = self._store.count(ORGANISATION, org=SYSTEM, most=2) > 1
        return min(self._settings.reserved_places, (self._most - 1) // 2) if several else 0

    async def _follow(self, source: StoreSource, slots: Slots) -> None:
        """Learn the line as it stands before any job of it is looked at, and then what changes."""
        await fill(slots, self._store, TRAIN_JOB, self._offload, [Phase.QUEUED])
        slots.open()
        await source.run()

    def _reconciler(self, slots: Slots, fence: Fence) -> TrainJobReconciler:
        return TrainJobReconciler(
            store=self._store,
            engine=self._engine,
            executor=self._executor,
            slots=slots,
            rules=self._rules,
            clock=self._clock,
            offload=self._offload,
            fence=fence,
            read=self._read,
            deploy=self._deploy,
        )

    def _crew(self, queue: KeyedQueue, reconciler: Reconciler) -> Crew:
        return Crew(
            queue,
            reconciler,
            failed=FailedPasses(self._store, self._settings, self._clock, self._offload),
            clock=self._clock,
            lost=self._leader.lose,
            observe=self._metrics.reconciles.observe,
            limit_s=self._settings.pass_limit_s,
        )

    def _figures(self) -> list[Family]:
        def depth() -> Mapping[tuple[str, ...], float]:
            return {(): float(len(queue)) if (queue := self._queue) is not None else 0.0}

        def leads() -> Mapping[tuple[str, ...], float]:
            return {(): float(self._queue is not None)}

        return [
            Reading("cloudml_queue_depth", "Jobs that wait to be looked at.", (), depth),
            Reading("cloudml_controller_leads", "Whether this server leads.", (), leads),
        ]

    async def _prune(self, fence: Fence) -> None:
        pause_s = _PRUNE_FIRST_S
        while True:
            await asyncio.sleep(pause_s)
            pause_s = _PRUNE_PERIOD_S
            prune = functools.partial(self._offload, self._store.prune, self._clock())
            for work in (prune, functools.partial(self._executor.tidy, fence)):
                try:
                    await work()
                except Exception:
                    logger.warning("what is old cannot be dropped now; trying again later", exc_info=True)


def most_jobs(settings: ControllerSettings) -> int:
    """How many jobs may run at once."""
    return settings.max_running_jobs or _JOBS_PER_CORE * len(os.sched_getaffinity(0))
