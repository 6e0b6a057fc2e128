"""Tells in events how far jobs have come, while this server leads."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from cloud_ml.domain.jobs.kind import TrainJobRecord
from cloud_ml.domain.records import Event
from cloud_ml.domain.workloads import progress_events
from cloud_ml.domain.workloads.progress import Progress
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.abilities import Reports
from cloud_ml.engines.base import Engine
from cloud_ml.engines.gang import GangKey
from cloud_ml.state.base import StateStore
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.jobs.tasks import tasks_of
from cloud_ml.usecases.offload import Offload


@dataclass(frozen=True)
class _LastEvent:
    """How many quarters of a job's work events have told of, and when the next may."""

    quarters: int
    next_at: datetime


class ProgressEvents:
    """Adds an event for each quarter of the work that a job reports as done.

    Args:
        store: Keeps the events.
        engine: Knows what tasks report.
        clock: The time.
        offload: Runs what blocks.
        period_s: So long after the start of a job, and after an event, there is no other.
    """

    def __init__(
        self,
        store: StateStore,
        engine: Engine,
        clock: Clock,
        offload: Offload,
        *,
        period_s: float,
    ) -> None:
        self._store = store
        self._engine = engine
        self._clock = clock
        self._offload = offload
        self._period = timedelta(seconds=period_s)
        self._last: dict[str, _LastEvent] = {}

    async def tell(self, job: TrainJobRecord) -> None:
        """Add an event if one is due."""
        uid, started = job.key.uid, job.status.started_at
        if not isinstance(self._engine, Reports) or started is None or not job.status.phase.runs:
            return
        now = self._clock()
        if now < started + self._period:
            return
        last = self._last.get(uid)
        if last is None:
            events = await self._offload(self._store.events, uid)
            last = self._last[uid] = _LastEvent(progress_events.reported_quarters(events), now)
        if now < last.next_at:
            return
        names = list(job.spec.workload.tasks)
        reports = await self._engine.progress(GangKey(uid, job.status.attempt), names)
        first = next((reports[name] for name in names if name in reports), None)
        if first is None or (done := progress_events.quarters_done(first)) <= last.quarters:
            return
        words = progress_events.sentence(first, await self._remaining_s(job, first))
        await self._offload(self._store.add_event, uid, Event(now, Reason.PROGRESS, words))
        self._last[uid] = _LastEvent(done, now + self._period)

    def forget(self, uid: str) -> None:
        """The job is over."""
        self._last.pop(uid, None)

    async def _remaining_s(self, job: TrainJobRecord, progress: Progress) -> float | None:
        tasks = (await tasks_of(job, self._engine)).items
        shown = [task.progress for task in tasks if task.progress is not None]
        return next((one.remaining_s for one in shown if one.at == progress.at), None)
