"""What events tell of the progress of a job, and how often."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cloud_ml.controller.results.progress import ProgressEvents
from cloud_ml.domain.jobs import spec as job_specs
from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.domain.workloads.progress import Progress
from cloud_ml.engines.fake import FakeEngine
from cloud_ml.engines.gang import GangKey
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.state.memory import MemoryStateStore
from cloud_ml.usecases.offload import Offload

pytestmark = pytest.mark.anyio
BEGUN = datetime(2026, 11, 29, tzinfo=UTC)


class Place:
    """A job that runs on a fake engine since ``BEGUN``."""

    def __init__(self) -> None:
        self.engine, self.store, self.now = FakeEngine(), MemoryStateStore(), BEGUN
        self.job = self.store.create(
            TRAIN_JOB,
            org="acme",
            name="linear",
            owner="ann",
            spec=job_specs.from_wire(TrainJob("linear", "trainer.task", "fds://cloudml/t.tar.gz")),
            status=WorkloadStatus(phase=Phase.RUNNING, attempt=1, started_at=BEGUN),
            now=BEGUN,
        )
        self.restart()

    def restart(self) -> None:
        """Another server leads, which remembers nothing."""
        self.events = ProgressEvents(
            self.store, self.engine, lambda: self.now, Offload(1), period_s=60.0
        )

    async def at(self, seconds: float, **progress: object) -> list[str]:
        """All that was told, when the job has reported this so long after its start."""
        self.now = BEGUN + timedelta(seconds=seconds)
        key = GangKey(self.job.key.uid, 1)
        self.engine.machine.reports[key, "master-0"] = Progress(self.now, **progress)  # type: ignore[arg-type]
        await self.events.tell(self.job)
        return [event.message for event in self.store.events(self.job.key.uid)]


async def test_each_quarter_is_told_once_and_at_most_one_a_minute() -> None:
    place = Place()
    assert await place.at(59, step=3, of=10) == []
    quarter = "30% done: step 3 of 10, loss 0.5"
    assert await place.at(60, step=3, of=10, metrics={"loss": 0.5}) == [quarter]
    assert await place.at(119, step=5, of=10) == [quarter]
    half = "50% done: step 5 of 10"
    assert await place.at(120, step=5, of=10) == [quarter, half]
    assert await place.at(1000, step=6, of=10) == [quarter, half]
    assert await place.at(2000, fraction=1.0) == [quarter, half, "100% done"]
    assert await place.at(3000, fraction=1.0) == [quarter, half, "100% done"]


async def test_the_next_server_tells_nothing_again() -> None:
    place = Place()
    messages = await place.at(60, fraction=0.58)
    assert messages == ["57% done"]
    place.restart()
    assert await place.at(1000, fraction=0.6) == messages
    assert await place.at(2000, fraction=0.1) == messages, "an attempt that begins anew"
    assert await place.at(3000, fraction=0.8) == [*messages, "80% done"]


async def test_who_does_not_say_how_much_there_is_gets_no_event() -> None:
    place = Place()
    assert await place.at(60, step=100, metrics={"loss": 0.5}) == []
