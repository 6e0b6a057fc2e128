"""What wakes the queues: one reading of the store's feed for all kinds, and gangs that changed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from cloud_ml.controller.placement.slots import Slots
from cloud_ml.controller.runtime.changes import ChangeFeed, EngineChanges, WatchedKind
from cloud_ml.controller.runtime.queue import KeyedQueue
from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.jobs.spec import from_wire
from cloud_ml.domain.records import Kind
from cloud_ml.domain.services.kind import REPLICA
from cloud_ml.domain.services.spec import ReplicaSpec
from cloud_ml.domain.workloads.phases import UNFINISHED, Phase, WorkloadStatus
from cloud_ml.engines.base import Capacity
from cloud_ml.engines.fake import FakeEngine
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.state.memory import MemoryStateStore
from cloud_ml.usecases.changes import ChangeHub
from cloud_ml.usecases.offload import Offload

pytestmark = pytest.mark.anyio
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Engine(FakeEngine):
    """Tells of the gangs it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.news: asyncio.Queue[str] = asyncio.Queue()

    async def changes(self) -> AsyncIterator[str]:
        while True:
            yield await self.news.get()


@contextlib.asynccontextmanager
async def running(source: ChangeFeed | EngineChanges) -> AsyncIterator[None]:
    task = asyncio.create_task(source.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def taken(queue: KeyedQueue) -> str:
    async with asyncio.timeout(60):
        return await queue.take()


def make(
    store: MemoryStateStore, kind: Kind[Any, WorkloadStatus], name: str, phase: Phase = Phase.QUEUED
) -> str:
    job = from_wire(TrainJob(name, "trainer.task", "fds://a/b"))
    spec = ReplicaSpec(1, "fds://a/b", job.workload) if kind is REPLICA else job
    status = WorkloadStatus(phase=phase, queued_at=NOW)
    return store.create(
        kind, org="o", name=name, owner="u", spec=spec, status=status, now=NOW
    ).key.uid


async def test_each_kind_goes_to_its_queue_before_and_after_the_start() -> None:
    store, jobs, replicas = MemoryStateStore(), KeyedQueue(), KeyedQueue()
    notices = asyncio.Queue[str]()
    prepared: list[str] = []

    async def handler(uid: str) -> None:
        notices.put_nowait(uid)

    early = make(store, TRAIN_JOB, "early"), make(store, REPLICA, "early")
    make(store, TRAIN_JOB, "over", Phase.SUCCEEDED)
    source = ChangeFeed(
        store,
        [WatchedKind(TRAIN_JOB, jobs, UNFINISHED), WatchedKind(REPLICA, replicas, UNFINISHED)],
        Offload(2),
        60.0,
        handlers={REPLICA.name: [handler]},
        prepare=[lambda: prepared.append("one"), lambda: prepared.append("other")],
    )
    async with running(source):
        assert (await taken(jobs), await taken(replicas)) == early
        assert sorted(prepared) == ["one", "other"]
        late = make(store, TRAIN_JOB, "late"), make(store, REPLICA, "late")
        assert (await taken(jobs), await taken(replicas)) == late
        assert await notices.get() == late[1], "the handler goes to who asked for that kind"
        assert notices.empty()
        assert not jobs._ready
        assert not replicas._ready


async def test_two_queues_of_one_kind_both_hear_of_a_record() -> None:
    store, jobs, metrics = MemoryStateStore(), KeyedQueue(), KeyedQueue()
    early = make(store, TRAIN_JOB, "early")
    followed = [WatchedKind(TRAIN_JOB, queue, UNFINISHED) for queue in (jobs, metrics)]
    async with running(ChangeFeed(store, followed, Offload(2), 60.0)):
        assert (await taken(jobs), await taken(metrics)) == (early, early)
        late = make(store, TRAIN_JOB, "late")
        assert (await taken(jobs), await taken(metrics)) == (late, late)


async def test_watches_of_requests_wake_by_what_the_feed_reads() -> None:
    store, jobs = MemoryStateStore(), KeyedQueue()
    uid = make(store, TRAIN_JOB, "early")
    hub = ChangeHub(store, Offload(2), poll_s=3_600.0)
    source = ChangeFeed(
        store, [WatchedKind(TRAIN_JOB, jobs, UNFINISHED)], Offload(2), 60.0, hub=hub
    )
    async with running(source), asyncio.timeout(60):
        await taken(jobs)
        with hub.watch(uid) as watch:
            await watch.wait(3_600.0)  # the hub's own first look
            store.request_delete(TRAIN_JOB, uid, now=NOW)
            await watch.wait(3_600.0)
    hub.close()


async def test_a_notice_that_hangs_holds_up_no_other_record_and_is_repeated() -> None:
    """What changed while it hung is told by another one: the first read the older state."""
    store, replicas, notices, released = (
        MemoryStateStore(),
        KeyedQueue(),
        asyncio.Queue[str](),
        asyncio.Event(),
    )
    hanging: list[str] = []

    async def handler(uid: str) -> None:
        if not hanging:
            hanging.append(uid)
            await released.wait()
        notices.put_nowait(uid)

    followed, handlers = [WatchedKind(REPLICA, replicas, UNFINISHED)], {REPLICA.name: [handler]}
    source = ChangeFeed(store, followed, Offload(2), 0.05, handlers=handlers, handler_limit_s=0.05)
    make(store, REPLICA, "early")
    async with running(source), asyncio.timeout(10):
        await replicas.take()
        victim, other = make(store, REPLICA, "victim"), make(store, REPLICA, "other")
        assert await notices.get() == other
        assert hanging == [victim]
        assert [await replicas.take(), await replicas.take()] == [victim, other]
        replicas.done(victim)
        record = store.get(REPLICA, victim)
        assert record is not None
        changed = replace(record.status, phase=Phase.RUNNING)
        store.commit_status(
            REPLICA, victim, changed, expected_revision=record.revision, fence=None, now=NOW
        )
        assert await replicas.take() == victim
        released.set()
        assert [await notices.get(), await notices.get()] == [victim, victim]


def slots(queue: KeyedQueue) -> Slots:
    return Slots(10, Capacity(1000, 1 << 40), queue.add)


async def test_a_gang_that_changed_wakes_who_gave_its_job_the_place() -> None:
    store, engine = MemoryStateStore(), Engine()
    jobs, replicas = KeyedQueue(), KeyedQueue()
    of_jobs, of_replicas = slots(jobs), slots(replicas)
    running_job = make(store, TRAIN_JOB, "job", Phase.RUNNING)
    running_replica = make(store, REPLICA, "replica", Phase.RUNNING)
    keep: tuple[tuple[Callable[..., None], Kind[Any, WorkloadStatus], str], ...] = (
        (of_jobs.sync, TRAIN_JOB, running_job),
        (of_replicas.sync, REPLICA, running_replica),
    )
    for sync, kind, uid in keep:
        sync(store.get(kind, uid))
    async with running(
        EngineChanges(engine, [(jobs, of_jobs.holds), (replicas, of_replicas.holds)])
    ):
        for uid in (running_job, running_replica, "of-a-server-before"):
            engine.news.put_nowait(uid)
        assert [await taken(jobs), await taken(jobs)] == [running_job, "of-a-server-before"]
        assert [await taken(replicas), await taken(replicas)] == [
            running_replica,
            "of-a-server-before",
        ]
        assert not len(jobs._ready) + len(replicas._ready)


async def test_who_hears_of_changes_in_another_way_learns_only_what_is_there_at_the_start() -> None:
    store, jobs, metrics = MemoryStateStore(), KeyedQueue(), KeyedQueue()
    early = make(store, TRAIN_JOB, "early")
    followed = [
        WatchedKind(TRAIN_JOB, metrics, UNFINISHED, only_at_start=True),
        WatchedKind(TRAIN_JOB, jobs, UNFINISHED),
    ]
    async with running(ChangeFeed(store, followed, Offload(2), 60.0)):
        assert (await taken(jobs), await taken(metrics)) == (early, early)
        metrics.done(early)
        late = make(store, TRAIN_JOB, "late")
        assert await taken(jobs) == late
        assert len(metrics) == 0
