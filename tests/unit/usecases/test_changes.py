from __future__ import annotations

import asyncio

import pytest

from cloud_ml.domain.jobs.kind import TrainJobRecord
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.engines.base import Capacity
from cloud_ml.errors import Unavailable
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.usecases.changes import ChangeHub
from support.platform import TRAINER, Served

pytestmark = pytest.mark.anyio
LONG_S = 3_600.0


def submit(served: Served, name: str = "linear") -> TrainJobRecord:
    return served.platform.jobs.submit(
        served.admin.identity, TrainJob(name, "trainer.task", TRAINER), Capacity(4000, 2**33)
    )


async def newer(
    served: Served, record: TrainJobRecord, hub: ChangeHub | None = None
) -> TrainJobRecord:
    jobs = served.platform.jobs
    return await (hub or served.platform.hub).newer(
        record.key.uid, record.revision, lambda: jobs.get(record.key.uid), timeout_s=120
    )


async def settled(hub: ChangeHub) -> None:
    """Let the hub come to rest at its wait for the next hint."""
    for _ in range(50):
        await asyncio.sleep(0)
    await hub._read(lambda: None)
    for _ in range(50):
        await asyncio.sleep(0)


async def test_a_change_ends_the_wait(served: Served) -> None:
    record = submit(served)
    waiting = asyncio.ensure_future(newer(served, record))
    await settled(served.platform.hub)
    assert not waiting.done()
    revision = served.move(record.key.uid, Phase.STARTING)
    assert (await asyncio.wait_for(waiting, 60)).revision == revision


async def test_a_change_of_something_else_does_not(served: Served) -> None:
    record, other = submit(served), submit(served, "other")
    waiting = asyncio.ensure_future(newer(served, record))
    served.move(other.key.uid, Phase.STARTING)
    await settled(served.platform.hub)
    assert not waiting.done()
    served.platform.hub.close()
    assert await waiting == record


async def test_what_changed_before_the_wait_is_seen_at_once(served: Served) -> None:
    record = submit(served)
    served.move(record.key.uid, Phase.STARTING)
    assert (await newer(served, record)).status.phase is Phase.STARTING


async def test_without_a_change_the_wait_ends_at_its_limit(served: Served) -> None:
    record = submit(served)
    jobs, hub = served.platform.jobs, served.platform.hub
    same = await hub.newer(
        record.key.uid, record.revision, lambda: jobs.get(record.key.uid), timeout_s=0.01
    )
    assert same == record


async def test_changes_of_other_servers_are_found_by_polling(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store of another server commits without a wake-up here."""
    record = submit(served)
    monkeypatch.setattr(served.store, "subscribe", lambda wake: lambda: None)
    hub = ChangeHub(served.store, served.platform.offload, poll_s=0.02)
    waiting = asyncio.ensure_future(newer(served, record, hub))
    await settled(hub)
    served.move(record.key.uid, Phase.STARTING)
    assert (await asyncio.wait_for(waiting, 60)).status.phase is Phase.STARTING
    hub.close()


async def test_who_follows_the_feed_wakes_the_watches(served: Served) -> None:
    """Commits are not read once more; what was told of no more is looked for."""
    record = submit(served)
    uid = record.key.uid
    hub = ChangeHub(served.store, served.platform.offload, poll_s=LONG_S)
    with hub.follower() as tell:
        waiting = asyncio.ensure_future(newer(served, record, hub))
        await settled(hub)
        served.move(uid, Phase.STARTING)
        tell(served.store.changes(record.revision))
        record = await asyncio.wait_for(waiting, 60)
        assert record.status.phase is Phase.STARTING
        waiting = asyncio.ensure_future(newer(served, record, hub))
        await settled(hub)
        served.move(uid, Phase.RUNNING)
    record = await asyncio.wait_for(waiting, 60)
    waiting = asyncio.ensure_future(newer(served, record, hub))
    await settled(hub)
    served.move(uid, Phase.SUCCEEDED)
    assert (await asyncio.wait_for(waiting, 60)).status.phase is Phase.SUCCEEDED
    hub.close()


async def test_changes_that_nobody_tells_of_are_found_by_polling(served: Served) -> None:
    record = submit(served)
    hub = ChangeHub(served.store, served.platform.offload, poll_s=0.02)
    with hub.follower():
        waiting = asyncio.ensure_future(newer(served, record, hub))
        await settled(hub)
        served.move(record.key.uid, Phase.STARTING)
        assert (await asyncio.wait_for(waiting, 60)).status.phase is Phase.STARTING
    hub.close()


async def test_a_store_that_does_not_answer_is_survived(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = submit(served)
    hub = ChangeHub(served.store, served.platform.offload, poll_s=0.02)
    waiting = asyncio.ensure_future(newer(served, record, hub))
    await settled(hub)

    def broken(*args: object, **kwargs: object) -> None:
        raise Unavailable("the database restarts")

    with monkeypatch.context() as patch:
        patch.setattr(served.store, "changes", broken)
        served.move(record.key.uid, Phase.STARTING)
        assert (await asyncio.wait_for(waiting, 60)).status.phase is Phase.STARTING
    hub.close()


async def test_nobody_watching_means_nobody_asking(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    wakes = []
    subscribe = served.store.subscribe
    gone = []

    def noted(wake: object) -> object:
        wakes.append(wake)
        leave = subscribe(wake)  # type: ignore[arg-type]
        return lambda: (gone.append(wake), leave())

    monkeypatch.setattr(served.store, "subscribe", noted)
    hub = ChangeHub(served.store, served.platform.offload, poll_s=0.01)
    record = submit(served)
    assert not wakes
    with hub.watch(record.key.uid) as watch:
        await watch.wait(0.05)
    follower = hub._follower
    assert follower is not None
    await asyncio.wait_for(follower, 60)
    assert wakes == gone
    assert hub._follower is None


async def test_a_closed_hub_lets_nobody_wait(served: Served) -> None:
    record = submit(served)
    served.platform.hub.close()
    assert await asyncio.wait_for(newer(served, record), 60) == record
