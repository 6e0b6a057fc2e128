"""The resource controller of model services and their replicas."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator

from cloud_ml.controller.executor import Executor
from cloud_ml.controller.placement.scheduler import Scheduler
from cloud_ml.controller.placement.slot_loading import fill
from cloud_ml.controller.reconcilers.model_service import ModelServiceReconciler
from cloud_ml.controller.reconcilers.workload import WorkloadReconciler
from cloud_ml.controller.routing.gateway import Gateway
from cloud_ml.controller.routing.ports import Ports
from cloud_ml.controller.routing.readiness import ReadinessProber
from cloud_ml.controller.routing.route_publisher import RoutePublisher
from cloud_ml.controller.routing.scaling import Scaling
from cloud_ml.controller.runtime.changes import WatchedKind
from cloud_ml.controller.runtime.queue import KeyedQueue
from cloud_ml.controller.runtime.repeating import Repeating
from cloud_ml.controller.runtime.term import ControllerTasks, Term
from cloud_ml.domain.access_tokens import ACCESS_TOKEN
from cloud_ml.domain.services.kind import MODEL_SERVICE, REPLICA, ServiceRecord
from cloud_ml.domain.services.spec import LoadRetries, ReplicaSpec, RequestLimits
from cloud_ml.domain.services.status import ServicePhase
from cloud_ml.domain.tenancy import ACCESS_KEY, ORGANISATION, USER
from cloud_ml.domain.workloads.phases import UNFINISHED
from cloud_ml.domain.workloads.rules import Rules
from cloud_ml.engines.abilities import Endpoints
from cloud_ml.engines.base import Engine
from cloud_ml.errors import TryAgain
from cloud_ml.settings import ControllerSettings, GatewaySettings
from cloud_ml.settings.gateway import ports_of
from cloud_ml.state.base import StateStore
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.models.calling_keys import CallingKeys
from cloud_ml.usecases.offload import Offload
from cloud_ml.usecases.short_reads import Reads

_MOST_REPLICAS = 10_000
_PAGE = 1000
_ABOUT_KEYS = (ACCESS_KEY.name, ACCESS_TOKEN.name, USER.name, ORGANISATION.name)
logger = logging.getLogger(__name__)
_WORKERS = 2
_UNFINISHED = tuple(each.value for each in ServicePhase)
"""No phase of a service is its last: one that stands still may have been started just before the
server died.
"""


class ModelServiceController:
    """Moves services with one pool of workers, and their replicas, which live like jobs, with
    another one.
    """

    def __init__(
        self,
        *,
        scheduler: Scheduler,
        store: StateStore,
        engine: Engine,
        endpoints: Endpoints,
        executor: Executor[ReplicaSpec],
        rules: Rules,
        settings: ControllerSettings,
        clock: Clock,
        offload: Offload,
        gateway: Gateway,
        serving: GatewaySettings,
        read: Reads | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._store = store
        self._engine = engine
        self._endpoints = endpoints
        self._executor = executor
        self._rules = rules
        self._settings = settings
        self._clock = clock
        self._offload = offload
        self._gateway = gateway
        self._serving = serving
        self._keys = CallingKeys(store, clock)
        self._learning: Repeating | None = None
        self._read = read or offload

    async def begin(self, term: Term) -> ControllerTasks:
        """See ``ResourceController``."""
        services, replicas = KeyedQueue(), KeyedQueue()
        answering = ReadinessProber(self._endpoints, services.add)
        entrances = RoutePublisher(
            self._gateway,
            Ports(ports_of(self._serving.ports), self._serving.ports_share),
            self._endpoints,
            answering,
        )
        scaling = Scaling(
            self._gateway,
            services.add,
            target=self._serving.target_in_flight,
            down_s=self._serving.scale_down_s,
        )
        keys = self._learning = Repeating(self._learn, self._settings.poll_s)
        slots = await self._scheduler.line("model", replicas.add, most=_MOST_REPLICAS)
        await fill(slots, self._store, REPLICA, self._offload)
        service_pool = term.pool(
            services,
            ModelServiceReconciler(
                store=self._store,
                prober=answering,
                publisher=entrances,
                scaling=scaling,
                clock=self._clock,
                offload=self._offload,
                fence=term.fence,
                keep_ended=self._serving.kept_replicas,
                quota_wait_s=self._serving.quota_wait_s,
                loading=LoadRetries(
                    self._serving.load_tries,
                    self._serving.load_retry_s,
                    self._serving.load_outage_s,
                ),
                limits=RequestLimits(
                    self._serving.message_limit_bytes, self._serving.caller_head_bytes
                ),
                defaults=self._scheduler.capacity.defaults,
            ),
        )
        replica_pool = term.pool(
            replicas,
            WorkloadReconciler(
                store=self._store,
                engine=self._engine,
                executor=self._executor,
                slots=slots,
                rules=self._rules,
                clock=self._clock,
                offload=self._offload,
                read=self._read,
                fence=term.fence,
                kind=REPLICA,
            ),
        )
        loop = asyncio.get_running_loop()

        def prepare() -> None:
            found = dict(self._everything())
            readable = [service for service in found.values() if service is not None]
            # This runs in a thread, and ``entrances`` belongs to the event loop. Pass all uids,
            # so that a service that cannot be read keeps its route.
            loop.call_soon_threadsafe(entrances.begin, readable, list(found))

        def end() -> None:
            self._learning = None
            answering.close()

        return ControllerTasks(
            followed=[
                WatchedKind(MODEL_SERVICE, services, _UNFINISHED),
                WatchedKind(REPLICA, replicas, UNFINISHED),
            ],
            handlers=dict.fromkeys(_ABOUT_KEYS, keys.soon),
            gangs=[(replicas, slots.holds)],
            prepare=[prepare],
            tasks=[
                keys.run,
                scaling.run,
                self._gateway.run,
                *[service_pool.work] * _WORKERS,
                *[replica_pool.work] * _WORKERS,
            ],
            end=end,
        )

    async def rights_in_force(self) -> None:
        """Wait until the gateway knows the keys and tokens that are stored now, for a bounded time.

        Returns at once where another server leads: that one tells the gateway, usually within a
        second.
        """
        if self._learning is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._serving.rights_wait_s):
                await self._learning.complete_pass()
                await self._gateway.settled()

    def _everything(self) -> Iterator[tuple[str, ServiceRecord | None]]:
        """Every service by its uid; ``None`` for one that cannot be read: its own pass will say
        what is wrong.
        """
        after: int | None = None
        while True:
            page = self._store.list(MODEL_SERVICE, after=after, limit=_PAGE)
            for line in page.items:
                try:
                    service = self._store.get(MODEL_SERVICE, line.key.uid)
                # The store is unavailable; the record itself is fine.
                except TryAgain:
                    raise
                except Exception:
                    logger.exception("a model service cannot be read", extra={"uid": line.key.uid})
                    yield line.key.uid, None
                    continue
                if service is not None:
                    yield line.key.uid, service
            if (after := page.next) is None:
                return

    async def _learn(self) -> None:
        self._gateway.learn(await self._offload(self._keys))
