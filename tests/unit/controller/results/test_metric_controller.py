"""When jobs are looked at for metrics, and when they are left alone."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace

import pytest

from cloud_ml.collector.client import CollectorProcess
from cloud_ml.controller.results.metrics import MetricController
from cloud_ml.controller.runtime.queue import KeyedQueue
from cloud_ml.domain.jobs import spec as job_specs
from cloud_ml.domain.jobs.kind import TRAIN_JOB, TrainJobRecord
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.engines.fake import FakeEngine
from cloud_ml.engines.gang import GangKey
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.settings.metrics import MetricSettings
from cloud_ml.state.memory import MemoryStateStore
from cloud_ml.usecases.clock import system_clock
from cloud_ml.usecases.metrics.collection import MetricCollection
from cloud_ml.usecases.metrics.file_collection import FileCollection
from cloud_ml.usecases.offload import Offload

pytestmark = pytest.mark.anyio
REPORT = b'{"step": 1, "time": 1.0, "metrics": {"loss": 1.0}}\n'


class Place:
    """A job on a fake engine, and the controller."""

    def __init__(self) -> None:
        self.engine, self.store = FakeEngine(), MemoryStateStore()
        self.controller = MetricController(
            MetricCollection(self.engine, self.store, system_clock, MetricSettings()),
            FileCollection(
                self.engine,
                CollectorProcess(0),  # it starts when there is a file
                self.store,
                owns=lambda org, bucket: False,
                clock=system_clock,
                settings=MetricSettings(),
            ),
            store=self.store,
            engine=self.engine,
            clock=system_clock,
            offload=Offload(1),
            period_s=1.0,
            files_period_s=1.0,
            listener=self.hear,
        )
        self.heard: list[int] = []
        self.waits = True
        self.job = self.store.create(
            TRAIN_JOB,
            org="acme",
            name="linear",
            owner="ann",
            spec=job_specs.from_wire(TrainJob("linear", "trainer.task", "fds://cloudml/t.tar.gz")),
            status=WorkloadStatus(phase=Phase.QUEUED),
            now=system_clock(),
        )

    def hear(self, job: TrainJobRecord) -> bool:
        """Somebody waits for the values: how many series there are when it is told."""
        self.heard.append(self.series)
        return self.waits

    async def stands(self, phase: Phase, attempt: int) -> None:
        """The job's status has changed, and the controller has looked at it."""
        self.commit(phase, attempt)
        await self.controller.reconcile(self.job.key.uid)

    def commit(self, phase: Phase, attempt: int) -> None:
        self.job = self.store.commit_status(
            TRAIN_JOB,
            self.job.key.uid,
            replace(self.job.status, phase=phase, attempt=attempt),
            expected_revision=self.job.revision,
            fence=None,
            now=system_clock(),
        )

    def report(self) -> None:
        key = GangKey(self.job.key.uid, self.job.status.attempt)
        self.engine.report_metrics(key, "master-0", REPORT)

    @property
    def series(self) -> int:
        return len(self.store.metrics.series(self.job.key.uid))


@pytest.mark.parametrize(
    ("phase", "attempt"),
    [
        (Phase.RUNNING, 1),
        (Phase.FINISHING, 1),
        (Phase.STOPPING, 1),
        (Phase.RESTARTING, 2),
        (Phase.PAUSED, 2),
        (Phase.QUEUED, 2),
    ],
)
async def test_what_a_job_has_reported_is_read_wherever_it_stands_now(
    phase: Phase, attempt: int
) -> None:
    place = Place()
    await place.stands(Phase.STARTING, 1)
    place.report()
    await place.stands(phase, attempt)
    assert place.series == 1


async def test_the_rest_of_an_attempt_is_read_while_the_next_one_starts() -> None:
    place = Place()
    await place.stands(Phase.RUNNING, 1)
    place.report()
    await place.stands(Phase.STARTING, 2)
    assert place.series == 1


async def test_a_job_that_has_not_run_costs_no_look_at_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place, looks = Place(), list[object]()
    monkeypatch.setattr(place.engine, "read_metrics", lambda *seen, **_: looks.append(seen))
    monkeypatch.setattr(place.engine, "watch_metrics", looks.append)
    await place.stands(Phase.QUEUED, 1)
    await place.stands(Phase.STARTING, 1)
    assert looks == []


async def test_what_is_left_at_the_end_is_collected_before_that_is_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So nobody looks at the files of a job that is over."""
    place, looks = Place(), list[object]()
    await place.stands(Phase.RUNNING, 1)
    place.report()
    assert place.controller.collect_rest(place.job)
    assert place.series == 1
    monkeypatch.setattr(place.engine, "read_metrics", lambda *seen, **_: looks.append(seen))
    await place.stands(Phase.SUCCEEDED, 1)
    assert looks == []


async def test_who_waits_for_values_is_told_when_they_are_there() -> None:
    place = Place()
    await place.stands(Phase.STARTING, 1)
    assert place.heard == []
    place.report()
    await place.stands(Phase.RUNNING, 1)
    assert place.heard == [1]


async def test_a_job_for_which_somebody_waits_is_read_at_once() -> None:
    place = Place()
    place.controller._period_s = 3600.0
    await place.stands(Phase.RUNNING, 1)
    queue = KeyedQueue()
    following = asyncio.create_task(place.controller._follow(queue))
    place.report()
    async with asyncio.timeout(30):
        assert await queue.take() == place.job.key.uid
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


@pytest.mark.parametrize("urgent", [False, True])
async def test_a_job_whose_files_have_changed_is_read_when_it_is_time(*, urgent: bool) -> None:
    place, begun = Place(), system_clock()
    place.waits = urgent
    place.controller._files_period_s = 3600.0
    await place.stands(Phase.RUNNING, 1)
    queue, uid = KeyedQueue(), place.job.key.uid
    following = asyncio.create_task(place.controller._follow_files(queue))
    place.engine.write_event_file(uid, "work/logs/events.out.tfevents.1", b"events")
    async with asyncio.timeout(30):
        while uid not in place.controller._changed:
            await asyncio.sleep(0)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    (due,) = [place.controller._next_read(uid, due) for due in place.controller._due.values()]
    waited = (due - begun).total_seconds()
    assert waited < 60 if urgent else waited >= 3600


@pytest.mark.parametrize("over", [False, True])
async def test_passes_do_not_wait_for_a_look_at_files_and_follow_it(
    monkeypatch: pytest.MonkeyPatch, *, over: bool
) -> None:
    """How long it takes is up to the tenant: two such jobs would hold up all others."""
    place, ends = Place(), threading.Event()
    controller, uid = place.controller, place.job.key.uid
    queue = controller._queue = KeyedQueue()
    monkeypatch.setattr(controller._files, "collect", lambda _: (ends.wait(60), True))
    controller._files_period_s = 0.0
    await place.stands(Phase.RUNNING, 1)
    async with asyncio.timeout(30):
        await controller.reconcile(uid)
        for phase in (Phase.STOPPING, Phase.SUCCEEDED) if over else ():
            place.commit(phase, 1)
            controller.note_pass(place.job)
            await controller.reconcile(uid)
        ends.set()
        assert await queue.take() == uid
        again = (await controller.reconcile(uid)).again
    assert (again is None, controller._due == {}, controller._looks) == (over, over, {})


async def test_a_look_that_fails_fails_the_next_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place()
    controller, uid = place.controller, place.job.key.uid
    queue = controller._queue = KeyedQueue()
    controller._files_period_s = 0.0

    def fail(_: TrainJobRecord) -> tuple[bool, bool]:
        raise OSError("no disk")

    monkeypatch.setattr(controller._files, "collect", fail)
    await place.stands(Phase.RUNNING, 1)
    await controller.reconcile(uid)
    async with asyncio.timeout(30):
        assert await queue.take() == uid
    with pytest.raises(OSError, match="no disk"):
        await controller.reconcile(uid)


@pytest.mark.parametrize("looked_at", [False, True])
async def test_nothing_is_watched_after_a_term(
    monkeypatch: pytest.MonkeyPatch, *, looked_at: bool
) -> None:
    place, ends = Place(), threading.Event()
    controller, uid, collect = place.controller, place.job.key.uid, place.controller._files.collect
    controller._queue = KeyedQueue()
    controller._files_period_s = 0.0
    monkeypatch.setattr(controller._files, "collect", lambda job: ends.wait(60) and collect(job))
    await place.stands(Phase.RUNNING, 1)
    looks = []
    if looked_at:
        await controller.reconcile(uid)
        looks = list(controller._looks.values())
    assert (place.engine._watched, set(place.engine._watched_files)) == ({uid}, {uid})
    controller._end()
    ends.set()
    await asyncio.gather(*looks)
    await asyncio.sleep(0)  # a callback of the look
    assert (place.engine._watched, set(place.engine._watched_files)) == (set(), set())


async def test_a_job_is_looked_at_a_moment_after_a_pass_has_seen_that_it_runs() -> None:
    place, now = Place(), [0.0]
    queue = place.controller._queue = KeyedQueue(lambda: now[0])
    for phase, attempt, due in (
        (Phase.QUEUED, 1, 0),
        (Phase.STARTING, 1, 0),
        (Phase.RUNNING, 1, 1),
        (Phase.FINISHING, 1, 1),  # what follows within the moment is the same look
    ):
        place.commit(phase, attempt)
        place.controller.note_pass(place.job)
        assert len(queue._due) == due
    now[0] = 1.0
    assert await queue.take() == place.job.key.uid
    queue.done(place.job.key.uid)
    place.controller.note_pass(place.job)
    assert not queue._due, "nothing has changed"


@pytest.mark.parametrize("looked_at", [False, True])
async def test_a_job_that_is_over_is_left_at_once_or_after_the_look_under_way(
    looked_at: bool,
) -> None:
    place, now = Place(), [0.0]
    queue = place.controller._queue = KeyedQueue(lambda: now[0])
    place.commit(Phase.RUNNING, 1)
    place.controller.note_pass(place.job)
    now[0] = 1.0
    if looked_at:
        assert await queue.take() == place.job.key.uid
    place.commit(Phase.SUCCEEDED, 1)
    place.controller.note_pass(place.job)
    assert not queue._due
    if looked_at:
        queue.done(place.job.key.uid)
        assert await queue.take() == place.job.key.uid
