"""The resource controller of train jobs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

from cloud_ml.controller.executor import Executor
from cloud_ml.controller.failover_metrics import FailoverMetrics
from cloud_ml.controller.placement.scheduler import Scheduler, most_jobs
from cloud_ml.controller.placement.slot_loading import PLACED, fill
from cloud_ml.controller.reconcilers.workload import WorkloadReconciler
from cloud_ml.controller.results.checkpoint_retention import CheckpointRetention
from cloud_ml.controller.runtime.changes import WatchedKind
from cloud_ml.controller.runtime.passes import begin_step
from cloud_ml.controller.runtime.queue import KeyedQueue
from cloud_ml.controller.runtime.term import ControllerTasks, Term
from cloud_ml.domain.jobs.kind import TRAIN_JOB, TrainJobRecord
from cloud_ml.domain.jobs.spec import JobSpec
from cloud_ml.domain.records import Event
from cloud_ml.domain.workloads.phases import UNFINISHED, Phase
from cloud_ml.domain.workloads.rules import Rules
from cloud_ml.engines.base import Engine
from cloud_ml.observability.metrics import Metrics, Reading
from cloud_ml.settings import ControllerSettings
from cloud_ml.state.base import StateStore
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.offload import Offload
from cloud_ml.usecases.short_reads import Reads


class TrainJobController:
    """Moves every train job towards what is wanted.

    Args:
        scheduler: Says who may run.
        store: Keeps the jobs.
        engine: Runs them.
        executor: Performs what was decided.
        settings: How many workers there are, and how many jobs may run.
        rules: What the operator has set about the life of jobs.
        clock: The time.
        offload: Runs the calls of the store.
        read: Reads single records.
        deploy: Makes what a job has trained a version of its model service, and says so in an
            event.
        retention: Removes checkpoints that jobs do not want to keep.
        metrics: Told how many jobs wait to be looked at, and of restarts.
        passed: Told of each job, as a pass leaves it.
    """

    def __init__(
        self,
        *,
        scheduler: Scheduler,
        store: StateStore,
        engine: Engine,
        executor: Executor[JobSpec],
        settings: ControllerSettings,
        rules: Rules,
        clock: Clock,
        offload: Offload,
        read: Reads | None = None,
        deploy: Callable[[TrainJobRecord], Event | None] | None = None,
        metrics: Metrics | None = None,
        retention: CheckpointRetention[JobSpec] | None = None,
        passed: Callable[[TrainJobRecord], None] | None = None,
    ) -> None:
        self._passed = passed
        self._scheduler = scheduler
        self._store = store
        self._engine = engine
        self._executor = executor
        self._settings = settings
        self._rules = rules
        self._clock = clock
        self._offload = offload
        self._read = read
        self._deploy = deploy
        self._retention = retention
        self._queue: KeyedQueue | None = None
        self._failover = None if metrics is None else FailoverMetrics(metrics)
        if metrics is not None:
            metrics.add(
                [Reading("cloudml_queue_depth", "Jobs that wait to be looked at.", (), self._depth)]
            )

    async def _deploy_model(self, job: TrainJobRecord) -> Sequence[Event]:
        """Serve the model of a job that asked for it; once, however often it is repeated."""
        if self._deploy is None or not job.spec.submitted.model_name:
            return ()
        begin_step("export the model")
        event = await self._offload(self._deploy, job)
        return [event] if event is not None else ()

    async def begin(self, term: Term) -> ControllerTasks:
        """See ``ResourceController``."""
        queue = self._queue = KeyedQueue()
        slots = await self._scheduler.line(
            "train", queue.add, most=most_jobs(self._settings), opened=False, reserving=True
        )
        # Jobs that have a place are looked at first, however long the line: one may have ended.
        for uid in await fill(slots, self._store, TRAIN_JOB, self._offload, PLACED):
            queue.add(uid)

        async def open_line() -> None:
            """Learn the line as it stands before any job of it is looked at."""
            await fill(slots, self._store, TRAIN_JOB, self._offload, [Phase.QUEUED])
            slots.open()

        reconciler = WorkloadReconciler(
            store=self._store,
            engine=self._engine,
            executor=self._executor,
            slots=slots,
            rules=self._rules,
            clock=self._clock,
            offload=self._offload,
            fence=term.fence,
            read=self._read,
            kind=TRAIN_JOB,
            after_success=self._deploy_model,
            retention=self._retention,
            passed=self._passed,
            committed=None if self._failover is None else self._failover.count,
        )
        pool = term.pool(queue, reconciler)
        return ControllerTasks(
            followed=[WatchedKind(TRAIN_JOB, queue, UNFINISHED)],
            gangs=[(queue, slots.holds)],
            before_changes=[open_line],
            tasks=[pool.work] * self._settings.workers,
            tidy=[functools.partial(self._executor.tidy, term.fence)],
            end=self._end,
        )

    def _end(self) -> None:
        self._queue = None

    def _depth(self) -> Mapping[tuple[str, ...], float]:
        return {(): float(len(self._queue)) if self._queue is not None else 0.0}
