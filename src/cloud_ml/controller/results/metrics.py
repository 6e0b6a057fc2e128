"""Collects metrics of jobs while this server leads.

A job is looked at a moment after the controller of jobs has seen that it runs, and when its
processes have reported: the kernel tells of that once, and then no more until the job was read. So
a job that waits in the queue costs nothing here, one that is silent costs one look, and one that
reports without end one in a while. It is the same with its event files and logs, where the engine
tells of them, and they are looked at now and then all the same. What it has left at its end is collected before that is
committed, so one that is over within that moment costs no other look at its files.

Where somebody waits for its values, such as a study that stops trials early, a job is looked at
sooner, and they are told.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol
from weakref import WeakValueDictionary

from cloud_ml.controller.results.progress import ProgressEvents
from cloud_ml.controller.runtime.changes import WatchedKind
from cloud_ml.controller.runtime.passes import begin_step
from cloud_ml.controller.runtime.queue import KeyedQueue
from cloud_ml.controller.runtime.reconciler import ReconcileResult
from cloud_ml.controller.runtime.term import ControllerTasks, Term
from cloud_ml.domain.jobs.kind import TRAIN_JOB, TrainJobRecord
from cloud_ml.domain.tenancy import SYSTEM
from cloud_ml.domain.workloads.phases import UNFINISHED, Phase, WorkloadStatus
from cloud_ml.engines.abilities import MetricReports
from cloud_ml.engines.base import Engine
from cloud_ml.state.base import StateStore
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.comparison.inputs import input_uris
from cloud_ml.usecases.metrics.collection import MetricCollection
from cloud_ml.usecases.metrics.file_collection import FileCollection
from cloud_ml.usecases.metrics.retention import PointRetention
from cloud_ml.usecases.offload import Offload
from cloud_ml.usecases.short_reads import Reads

_WORKERS = 2
_URGENT_S = 0.02
"""A job for which somebody waits is read so soon, and once in so long for each such job."""
_URGENT_FILES_S = 0.2
"""The same for event files and logs: a look walks through folders."""
_REST = 10
"""After a look, nobody looks at the files of that job for so many times as long as it took: its
folders may have as many names as it likes.
"""
_LOOKS = 2
"""Looks at files of jobs of one organisation at a time."""
_LONGEST_PERIOD_S = 20.0
_QUICK_S = 0.5
"""A pass waits so long for the manifest of inputs of a job that has ended."""
_MOMENT_S = 0.25
"""So long after a change a job is looked at: changes that follow each other are one look."""


@dataclass(frozen=True)
class _Due:
    """When the files of a job are read next, at the soonest and if nobody tells of something new, and
    the time from the last read to that.
    """

    at: datetime
    not_before: datetime
    read_at: datetime
    period_s: float


Listener = Callable[[TrainJobRecord], bool]


def _nobody(_job: TrainJobRecord) -> bool:
    return False


class InputRecorder(Protocol):
    """Notes what jobs read. Blocking."""

    def note(self, job: TrainJobRecord, stop: Callable[[], bool], /) -> None:
        """Note what the URIs of a job lead to now, unless it was noted before."""


class MetricController:
    """Moves what jobs report from their files to the store.

    Args:
        collection: Reads and stores what they report.
        files: Reads and stores what is in event files and logs.
        store: Keeps the jobs.
        engine: Says when jobs report.
        clock: The time.
        offload: Runs what blocks.
        read: Reads single records.
        listener: Called with each job that was read. Says whether somebody waits for its values.
        period_s: How often a job is read at most.
        files_period_s: How often its files are, while something is new in them.
        inputs: Notes what jobs read.
        retention: Removes points that are too old.
        progress: Tells how far jobs have come.
    """

    def __init__(
        self,
        collection: MetricCollection,
        files: FileCollection,
        *,
        store: StateStore,
        engine: Engine,
        clock: Clock,
        offload: Offload,
        period_s: float,
        files_period_s: float,
        read: Reads | None = None,
        listener: Listener = _nobody,
        inputs: InputRecorder | None = None,
        retention: PointRetention | None = None,
        progress: ProgressEvents | None = None,
    ) -> None:
        self._inputs = inputs
        self._progress = progress
        self._retention = retention
        self._noting: dict[str, asyncio.Task[None]] = {}
        self._collection = collection
        self._files = files
        self._files_period_s = files_period_s
        self._due: dict[str, _Due] = {}
        self._looks: dict[str, asyncio.Task[_Due]] = {}
        """Those at files of jobs that are under way, or whose result no pass has seen."""
        self._look_limits: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        """By organisation."""
        self._changed: set[str] = set()
        """Jobs in whose files something is new."""
        self._store = store
        self._engine: MetricReports | None = engine if isinstance(engine, MetricReports) else None
        self._clock = clock
        self._offload = offload
        self._read = read or offload
        self._period_s = period_s
        self._listener = listener
        self._urgent: set[str] = set()
        self._queue: KeyedQueue | None = None
        self._revisions: dict[str, int] = {}
        """Of jobs that run, up to where their changes are looked at."""

    async def begin(self, term: Term) -> ControllerTasks:
        """See ``ResourceController``."""
        if self._engine is None:
            return ControllerTasks()
        queue = self._queue = KeyedQueue()
        pool = term.pool(queue, self)
        return ControllerTasks(
            followed=[WatchedKind(TRAIN_JOB, queue, UNFINISHED, only_at_start=True)],
            tasks=[
                functools.partial(self._follow, queue),
                functools.partial(self._follow_files, queue),
                *[pool.work] * _WORKERS,
            ],
            tidy=[self._expire],
            end=self._end,
        )

    def _end(self) -> None:
        """Watch nothing more: another server may lead when the jobs end."""
        self._queue = None
        self._looks.clear()
        for uid in [*self._due, *self._revisions]:
            self._leave(uid)

    def note_pass(self, job: TrainJobRecord) -> None:
        """The controller of jobs, which this server leads too, leaves a job as it is now."""
        uid = job.key.uid
        if self._queue is None:
            return
        if job.status.phase.terminal or job.delete_requested_at is not None:
            if self._queue.is_taken(uid):  # a pass is under way: another one follows, and leaves it
                self._queue.add(uid)
            else:
                self._leave(uid)
        elif _may_have_reported(job.status) and self._revisions.get(uid) != job.revision:
            self._revisions[uid] = job.revision
            self._queue.add_after(uid, min(self._period_s, _MOMENT_S))

    async def _expire(self) -> None:
        if self._retention is not None:
            await self._offload.long(SYSTEM, self._retention.expire, self._offload.stopping)

    async def reconcile(self, uid: str) -> ReconcileResult:
        """Collect what a job has reported; see ``Reconciler``."""
        begin_step("read the record")
        job = await self._read(self._store.get, TRAIN_JOB, uid)
        if job is None or job.status.phase.terminal or job.delete_requested_at is not None:
            self._leave(uid)
            return ReconcileResult()
        if not _may_have_reported(job.status):
            return ReconcileResult()
        self._watch(uid)  # before the look: what is written from here on is heard
        self._note_inputs(job)
        begin_step("read its metrics")
        if not await self._offload(self._collection.collect, job):
            return ReconcileResult(0, self._clock() + timedelta(milliseconds=1))
        self._tell(job)
        begin_step("read its files")
        due = await self._read_files(job)
        return ReconcileResult(0, None if due is None else self._next_read(uid, due))

    async def _read_files(self, job: TrainJobRecord) -> _Due | None:
        """Have event files and logs of a job that lives read, if it is time.

        Returns when they are to be read next; ``None`` while they are read: that queues the job at
        its end.
        """
        now, uid = self._clock(), job.key.uid
        due = self._due.get(uid)
        look = self._looks.get(uid)
        if due is None:  # it has just begun; many are over before there is anything to read
            first = now + timedelta(seconds=self._period_of_files(uid))
            due = _Due(first, now, now, self._files_period_s)
            await self._offload(self._files.watch, job)
        elif look is not None:
            if not look.done():
                return None
            del self._looks[uid]
            due = look.result()
            if self._progress is not None:
                await self._progress.tell(job)
        elif now >= self._next_read(uid, due):
            self._begin_look(job, due)
            return None
        self._due[uid] = due
        return due

    def _begin_look(self, job: TrainJobRecord, due: _Due) -> None:
        """Read files beside the passes. How long it takes, and waits for others of its organisation,
        is up to the tenant, and passes of other jobs are not to wait for it.
        """
        uid, queue = job.key.uid, self._queue
        look = self._looks[uid] = asyncio.create_task(self._look(job, due))

        def end(look: asyncio.Task[_Due]) -> None:
            if not look.cancelled():
                look.exception()  # the next pass raises it, if there is one
            if self._queue is not queue:  # the term is over
                self._files.forget(uid)
            elif queue is not None:
                queue.add(uid)

        look.add_done_callback(end)

    async def _look(self, job: TrainJobRecord, due: _Due) -> _Due:
        org = job.key.org
        if (limit := self._look_limits.get(org)) is None:
            limit = self._look_limits[org] = asyncio.Semaphore(_LOOKS)
        async with limit:
            begun = self._clock()
            self._changed.discard(job.key.uid)
            whole, new = await self._offload.long(org, self._files.collect, job)
        if new:
            self._tell(job)
        period = self._files_period_s if new else min(due.period_s * 1.5, _LONGEST_PERIOD_S)
        now = self._clock()
        wait = timedelta(seconds=period) if whole else timedelta(milliseconds=1)
        return _Due(now + wait, now + _REST * (now - begun), now, period)

    def _next_read(self, uid: str, due: _Due) -> datetime:
        """When the files of a job are to be read: sooner if something is new in them."""
        if uid not in self._changed:
            return due.at
        soon = due.read_at + timedelta(seconds=self._period_of_files(uid))
        return min(due.at, max(due.not_before, soon))

    def _period_of_files(self, uid: str) -> float:
        """Seconds between two looks at files in which something is new."""
        if uid in self._urgent:
            return min(self._files_period_s, _URGENT_FILES_S * len(self._urgent))
        return self._files_period_s

    def step_aside(self, uid: str) -> None:
        """See ``Reconciler``. Nobody waits in a line for it."""

    def _note_inputs(self, job: TrainJobRecord) -> asyncio.Task[None] | None:
        """Note what a job reads, once, beside everything else: that may take a while."""
        if self._inputs is None:
            return None
        task = self._noting.get(job.key.uid)
        if task is None and input_uris(job.spec):
            stopping = self._offload.stopping
            task = asyncio.create_task(
                self._offload.long(job.key.org, self._inputs.note, job, stopping)
            )
            self._noting[job.key.uid] = task
        return task

    async def has_noted_inputs(self, job: TrainJobRecord) -> bool:
        """Have what a job that ends has read noted. Returns whether that is done."""
        noting = self._note_inputs(job)
        return noting is None or bool((await asyncio.wait({noting}, timeout=_QUICK_S))[0])

    def collect_rest(self, job: TrainJobRecord) -> bool:
        """Collect a part of what a job has left at its end. Returns whether that was the last.
        Blocking.
        """
        if not self._collection.collect(job):
            return False
        whole, _ = self._files.collect(job, over=True)
        return whole

    def _watch(self, uid: str) -> None:
        if self._engine is not None:
            self._engine.watch_metrics(uid)

    def _tell(self, job: TrainJobRecord) -> None:
        if self._listener(job):
            self._urgent.add(job.key.uid)
        else:
            self._urgent.discard(job.key.uid)

    def _leave(self, uid: str) -> None:
        self._urgent.discard(uid)
        look = self._looks.get(uid)
        if look is not None and not look.done():  # it queues the job at its end
            return
        self._looks.pop(uid, None)
        self._collection.forget(uid)
        self._files.forget(uid)
        self._due.pop(uid, None)
        self._changed.discard(uid)
        if self._progress is not None:
            self._progress.forget(uid)
        self._noting.pop(uid, None)
        self._revisions.pop(uid, None)
        if self._queue is not None:
            self._queue.drop_later(uid)
        if self._engine is not None:
            self._engine.unwatch_metrics(uid)

    async def _follow(self, queue: KeyedQueue) -> None:
        """Queue each job that reports, a while later. Never returns."""
        assert self._engine is not None
        async for uid in self._engine.metric_changes():
            soon = min(self._period_s, _URGENT_S * len(self._urgent))
            queue.add_after(uid, soon if uid in self._urgent else self._period_s)

    async def _follow_files(self, queue: KeyedQueue) -> None:
        """Queue each job in whose files something is new, when it is time. Never returns."""
        changes = self._files.changes()
        if changes is None:
            await asyncio.Event().wait()
            return
        async for uid in changes:
            if (due := self._due.get(uid)) is not None:
                self._changed.add(uid)
                wait = self._next_read(uid, due) - self._clock()
                queue.add_after(uid, max(0.0, wait.total_seconds()))


def _may_have_reported(status: WorkloadStatus) -> bool:
    """Whether a task is known to run, or has run. Who is queued first is at attempt 1, too."""
    return status.attempt > 1 or status.phase.runs or status.phase is Phase.STOPPING
