"""Stores and removes what jobs leave beside the passes of the controller: either may take minutes.

At the end of a job its metrics are collected, and then its outputs, by one call on a thread: most
jobs leave neither, and for those the way to a thread is all that it costs.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Generic, TypeVar

from cloud_ml import failpoints
from cloud_ml.domain.jobs.kind import TRAIN_JOB, TrainJobRecord
from cloud_ml.domain.records import Event, EventType
from cloud_ml.domain.tenancy import ORGANISATION, SYSTEM
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.abilities import WorkingDirectories
from cloud_ml.errors import TryAgain
from cloud_ml.state.base import Fence, StateStore
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.jobs.output_collection import CollectedOutputs, OutputCollection
from cloud_ml.usecases.jobs.outputs import Outputs, interruption
from cloud_ml.usecases.offload import Offload

T = TypeVar("T")
_QUICK_S = 0.5
"""A pass waits so long. Most jobs leave little, and end without a second pass."""
logger = logging.getLogger(__name__)


class _Work(Generic[T]):
    """A call on a thread, which can be told to give up."""

    def __init__(self, task: asyncio.Task[T], stop: threading.Event) -> None:
        self.task = task
        self.stop = stop


def _no_metrics(_job: TrainJobRecord) -> bool:
    return True


class JobOutputs:
    """The outputs of jobs as the controller sees them. Belongs to one event loop.

    Args:
        engine: Has the working directories.
        store: Keeps the jobs.
        outputs: Where outputs are kept.
        collection: Stores them.
        clock: The time.
        offload: The threads.
        retention_days: How long outputs are kept; 0 for as long as their job.
        collect_metrics: Called on a thread before the outputs of a job are stored, until it says
            that all of its metrics are collected.
    """

    def __init__(
        self,
        *,
        engine: WorkingDirectories,
        store: StateStore,
        outputs: Outputs,
        collection: OutputCollection,
        clock: Clock,
        offload: Offload,
        retention_days: int = 0,
        collect_metrics: Callable[[TrainJobRecord], bool] = _no_metrics,
    ) -> None:
        self._collect_metrics = collect_metrics
        self._engine = engine
        self._retention_days = retention_days
        self._store = store
        self._outputs = outputs
        self._collection = collection
        self._clock = clock
        self._offload = offload
        self._collecting: dict[str, _Work[CollectedOutputs]] = {}
        self._deleting: dict[str, _Work[bool]] = {}

    async def collect(self, job: TrainJobRecord) -> CollectedOutputs | None:
        """Collect the metrics that a job left, and store its outputs; ``None`` while that goes on.
        A job that is to be deleted keeps nothing.

        Raises:
            TryAgain: A part does not answer; the next call begins again.
        """
        uid = job.key.uid
        if job.delete_requested_at is not None:
            if (work := self._collecting.get(uid)) is not None:
                work.stop.set()
            return CollectedOutputs()
        return await self._result(self._collecting, job, self._collect)

    async def delete(self, job: TrainJobRecord) -> bool:
        """Remove what a job left; ``False`` while that goes on.

        Raises:
            TryAgain: A part does not answer; the next call begins again.
        """
        work = self._collecting.get(job.key.uid)
        if work is not None:
            # Stop the collection first. Otherwise it could store files after their removal.
            work.stop.set()
            if not work.task.done():
                return False
            del self._collecting[job.key.uid]
        gone = await self._result(self._deleting, job, self._delete)
        if gone:
            failpoints.here("outputs.delete.after")
        return bool(gone)

    async def expire(self, fence: Fence) -> None:
        """Remove the outputs of jobs that ended longer ago than outputs are kept.

        Raises:
            TryAgain: A part does not answer; the next call goes on.
        """
        if not self._retention_days:
            return
        now = self._clock()
        old = self._outputs.ended_before(now - timedelta(days=self._retention_days))
        for job in await self._offload.long(SYSTEM, list, old):
            if not await self.delete(job):
                continue  # it goes on meanwhile, and the next call finds it done
            sentence = f"the outputs were removed {self._retention_days} days after the end (outputs.retention_days)"
            await self._offload(
                self._store.commit_status,
                TRAIN_JOB,
                job.key.uid,
                replace(job.status, outputs=None),
                expected_revision=job.revision,
                fence=fence,
                now=now,
                events=[Event(now, Reason.OUTPUTS_EXPIRED, sentence)],
            )

    async def _result(
        self,
        running: dict[str, _Work[T]],
        job: TrainJobRecord,
        call: Callable[[TrainJobRecord, Callable[[], bool]], T],
    ) -> T | None:
        """What ``call`` returns; it is begun once, and goes on between passes."""
        work = running.get(job.key.uid)
        if work is None:
            stop = threading.Event()

            def stopping() -> bool:
                return stop.is_set() or self._offload.stopping()

            task = asyncio.create_task(self._offload.long(job.key.org, call, job, stopping))
            task.add_done_callback(_look_at_error)
            work = running[job.key.uid] = _Work(task, stop)
        # Use wait, because wait_for would cancel the task on timeout.
        done, _ = await asyncio.wait({work.task}, timeout=_QUICK_S)
        if not done:
            return None
        running.pop(job.key.uid, None)
        return work.task.result()

    def _collect(self, job: TrainJobRecord, stop: Callable[[], bool]) -> CollectedOutputs:
        while not self._collect_metrics(job):
            if stop():
                raise interruption()
        try:
            return self._collect_outputs(job, stop)
        # A temporary error: the next pass retries. Any other error must not keep the job from
        # ending.
        except TryAgain:
            raise
        except Exception as error:  # the job keeps its own end
            logger.exception(
                "the outputs of a job cannot be saved",
                extra={"job": job.key.name, "uid": job.key.uid},
            )
            sentence = f"could not save outputs, because {type(error).__name__}: {error}"
            return CollectedOutputs(
                events=[Event(self._clock(), Reason.OUTPUTS_NOT_SAVED, sentence, EventType.WARNING)]
            )

    def _collect_outputs(self, job: TrainJobRecord, stop: Callable[[], bool]) -> CollectedOutputs:
        organisation = self._store.find(ORGANISATION, SYSTEM, job.key.org)
        if organisation is None:
            return CollectedOutputs()
        with self._engine.working_directory(job.key.uid, organisation.spec.number) as directory:
            return (
                CollectedOutputs()
                if directory is None
                else self._collection.collect(job, directory, stop=stop)
            )

    def _delete(self, job: TrainJobRecord, stop: Callable[[], bool]) -> bool:
        self._outputs.delete(job, stop=stop)
        return True


def _look_at_error(task: asyncio.Task[T]) -> None:
    """Nobody waits for a collection whose job is deleted: its error is no news."""
    if not task.cancelled():
        task.exception()
