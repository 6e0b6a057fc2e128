"""The controller from end to end, over the fakes: from a submit to the last state, and through
its own deaths.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from cloud_ml.domain.jobs.spec import JobSpec
from cloud_ml.domain.records import Kind, Summary
from cloud_ml.domain.tenancy import Role
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.domain.workloads.spec import Desired
from cloud_ml.engines.base import JobPaths
from cloud_ml.engines.fake import FakeEngine
from cloud_ml.engines.gang import GangKey, TrainerSource
from cloud_ml.errors import Unavailable
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.state.base import Page
from cloud_ml.state.memory import MemoryStateStore
from support.controller_world import World

pytestmark = pytest.mark.anyio


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    yield world
    world.offload.close()


async def test_from_submit_to_success(world: World) -> None:
    async with world.controller():
        uid = await world.submit("linear", job_args=["--a"])
        await world.until_phase(uid, Phase.RUNNING)
        plan = world.machine.plans[GangKey(uid, 1)]
        assert plan.processes[0].command == ("python", "-m", "trainer.task", "--a")
        assert plan.environment.trainer == TrainerSource(
            hashlib.sha256(b"code").hexdigest(), "t.tar.gz"
        )
        world.engine.finish(GangKey(uid, 1))
        ended = await world.until_phase(uid, Phase.SUCCEEDED)
    assert ended.status.exit_code == 0
    assert [event.reason for event in world.store.events(uid)] == [
        "Submitted",
        "Starting",
        "Started",
        "Completed",
    ]
    assert world.machine.starts == [GangKey(uid, 1)]


async def test_a_failed_attempt_is_followed_by_the_next(world: World) -> None:
    async with world.controller():
        uid = await world.submit("again", max_retries=1)
        await world.until_phase(uid, Phase.RUNNING)
        world.engine.finish(GangKey(uid, 1), 3)
        await world.until_phase(uid, Phase.RUNNING, attempt=2)
        world.engine.finish(GangKey(uid, 2), 4)
        ended = await world.until_phase(uid, Phase.FAILED, attempt=2)
    assert (ended.status.exit_code, ended.status.reason) == (4, "NonZeroExit")
    assert world.machine.starts == [GangKey(uid, 1), GangKey(uid, 2)]


async def test_places_are_limited_and_handed_on_in_order(world: World) -> None:
    async with world.controller():
        uids = [await world.submit(f"job-{number}") for number in range(4)]
        for uid in uids[:2]:
            await world.until_phase(uid, Phase.RUNNING)
        for running, waiting in zip(uids, uids[2:], strict=False):
            record = world.record(waiting)
            assert record is not None
            assert record.status.phase is Phase.QUEUED
            world.engine.finish(GangKey(running, 1))
            await world.until_phase(waiting, Phase.RUNNING)
    starts = [key.job_uid for key in world.machine.starts]
    assert (sorted(starts[:2]), starts[2:]) == (sorted(uids[:2]), uids[2:])


async def test_jobs_that_never_end_leave_a_place_to_another_organisation(world: World) -> None:
    async with world.controller(max_running_jobs=3):
        endless = [await world.submit(f"endless-{number}") for number in range(5)]
        for uid in endless[:3]:
            await world.until_phase(uid, Phase.RUNNING)  # alone on the server, it has all places
        for uid in endless[:3]:
            world.engine.finish(GangKey(uid, 1))
            await world.until_phase(uid, Phase.SUCCEEDED)
        other = world.identities.create_organisation("other", default_bucket="others")
        world.storage.create_bucket(other, "others")
        world.objects.put("others", "t.tar.gz", b"code")
        zoe = world.identities.create_key(other, "zoe")
        waiting = await world.submit("endless-5")
        for uid in endless[3:]:
            await world.until_phase(uid, Phase.RUNNING)
        theirs = await world.submit("theirs", caller=zoe, trainer_uri="fds://others/t.tar.gz")
        await world.until_phase(theirs, Phase.RUNNING)
        record = world.record(waiting)
        assert record is not None
        assert record.status.phase is Phase.QUEUED


async def test_after_a_restart_places_are_kept_and_the_line_has_its_order(world: World) -> None:
    async with world.controller():
        running = [await world.submit(f"running-{number}") for number in range(2)]
        for uid in running:
            await world.until_phase(uid, Phase.RUNNING)
    waiting = [await world.submit(f"waiting-{number}") for number in range(5)]
    urgent = await world.submit("urgent", enable_rank=1)
    world.engine = FakeEngine(world.machine)
    async with world.controller():
        for ended, next_one in zip([*running, urgent], [urgent, *waiting[:2]], strict=True):
            world.engine.finish(GangKey(ended, 1))
            await world.until_phase(next_one, Phase.RUNNING)
    assert [key.job_uid for key in world.machine.starts[2:]] == [urgent, *waiting[:2]]


async def test_after_a_restart_who_has_a_place_does_not_wait_for_the_line(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading thousands of queued jobs takes seconds, in which a server may be killed again."""
    async with world.controller():
        running = [await world.submit(f"running-{number}") for number in range(2)]
        for uid in running:
            await world.until_phase(uid, Phase.RUNNING)
    older, newer = await world.submit("older"), await world.submit("newer")
    world.engine.finish(GangKey(running[0], 1))
    world.engine = FakeEngine(world.machine)
    readable, read = threading.Event(), world.store.list

    def slow(kind: Kind[JobSpec, WorkloadStatus], **filters: Any) -> Page[Summary]:
        assert Phase.QUEUED not in (filters.get("indexes") or ()) or readable.wait(60)
        return read(kind, **filters)

    monkeypatch.setattr(world.store, "list", slow)
    async with world.controller():
        await world.until_phase(running[0], Phase.SUCCEEDED)
        assert [world.record(uid).status.phase for uid in (older, newer)] == [Phase.QUEUED] * 2  # type: ignore[union-attr]
        readable.set()
        await world.until_phase(older, Phase.RUNNING)
        world.engine.finish(GangKey(older, 1))
        await world.until_phase(newer, Phase.RUNNING)
    assert [key.job_uid for key in world.machine.starts[2:]] == [older, newer]


async def test_cancel_and_delete(world: World) -> None:
    async with world.controller():
        cancelled, deleted = await world.submit("cancelled"), await world.submit("deleted")
        for uid in (cancelled, deleted):
            await world.until_phase(uid, Phase.RUNNING)
        await world.offload(world.jobs.cancel, world.admin.org, "cancelled", world.admin)
        await world.offload(world.jobs.delete, world.admin.org, "deleted", world.admin)
        stopped = await world.until_phase(cancelled, Phase.STOPPED)
        assert stopped.status.reason == "Cancelled"
        await world.until(deleted, lambda record: record is None)
    assert GangKey(deleted, 1) not in {key for key, _ in world.machine.logs}
    assert all(gang.state.over for gang in world.machine.gangs.values())


async def test_a_trainer_that_is_not_there_or_not_the_tenants_ends_the_job(world: World) -> None:
    other = world.identities.create_organisation("other", default_bucket="others")
    world.storage.create_bucket(other, "others")
    world.identities.create_key(other, "zoe", role=Role.MEMBER)
    world.objects.put("others", "t.tar.gz", b"theirs")
    async with world.controller():
        for number, uri in enumerate(("fds://cloudml/none.tar.gz", "fds://others/t.tar.gz")):
            job = TrainJob(f"absent-{number}", "trainer.task", uri, check_uris=False)
            record = world.jobs.submit(world.admin, job, await world.engine.capacity())
            ended = await world.until_phase(record.key.uid, Phase.FAILED)
            assert (ended.status.reason, ended.status.message) == (
                "TrainerNotFound",
                f"the trainer {uri} does not exist",
            )
    assert world.machine.starts == []


async def test_what_happened_while_no_controller_ran_is_found(world: World) -> None:
    async with world.controller("one"):
        ended, running = await world.submit("ended"), await world.submit("running")
        for uid in (ended, running):
            await world.until_phase(uid, Phase.RUNNING)
    waiting, unwanted = await world.submit("waiting"), await world.submit("unwanted")
    world.jobs.cancel(world.admin.org, "unwanted", world.admin)
    world.engine.finish(GangKey(ended, 1))
    world.engine = FakeEngine(world.machine)
    async with world.controller("one"):
        await world.until_phase(ended, Phase.SUCCEEDED)
        await world.until_phase(waiting, Phase.RUNNING)
        await world.until_phase(unwanted, Phase.STOPPED)
        record = world.record(running)
        assert record is not None
        assert record.status.phase is Phase.RUNNING
    assert world.machine.starts.count(GangKey(running, 1)) == 1


async def test_the_next_controller_takes_over_and_nothing_starts_twice(world: World) -> None:
    async with world.controller("one") as first:
        uids = [await world.submit(f"job-{number}") for number in range(2)]
        for uid in uids:
            await world.until_phase(uid, Phase.RUNNING)
        async with world.controller("two"):
            first.cancel()
            for uid in uids:
                world.engine.finish(GangKey(uid, 1))
                await world.until_phase(uid, Phase.SUCCEEDED)
    assert sorted(map(str, world.machine.starts)) == sorted(f"{uid}.1" for uid in uids)


async def test_an_engine_that_is_away_is_asked_again(world: World) -> None:
    world.engine.broken = True
    async with world.controller():
        uid = await world.submit("patient")
        await world.until_phase(uid, Phase.STARTING)
        assert world.machine.starts == []
        world.engine.broken = False
        await world.until_phase(uid, Phase.RUNNING)
    assert world.machine.starts == [GangKey(uid, 1)]


async def test_a_store_that_is_away_is_asked_again(world: World) -> None:
    async with world.controller():
        uid = await world.submit("patient")
        await world.until_phase(uid, Phase.RUNNING)
        store, away = world.store, Unavailable("the store is away")
        assert isinstance(store, MemoryStateStore)
        store.fail_writes(away)
        world.engine.finish(GangKey(uid, 1))
        await world.until(uid, lambda _: away.__traceback__ is not None)  # it was raised
        store.fail_writes(None)
        await world.until_phase(uid, Phase.SUCCEEDED)


async def test_one_job_that_cannot_be_planned_holds_up_nobody(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world.controller(workers=1):
        places = world.engine.places
        bad = await world.submit("bad", save_mode=True)

        def fail(uid: str, tasks: Sequence[str] = ()) -> JobPaths:
            if uid == bad:
                raise RuntimeError("a fault of ours")
            return places(uid, tasks)

        monkeypatch.setattr(world.engine, "places", fail)
        world.jobs.start(world.admin.org, "bad", world.admin)
        await world.until_phase(bad, Phase.STARTING)
        good = await world.submit("good")
        await world.until_phase(good, Phase.RUNNING)
        monkeypatch.undo()
        await world.until_phase(bad, Phase.RUNNING)


async def test_a_saved_job_waits_for_its_start(world: World) -> None:
    async with world.controller():
        saved, other = await world.submit("saved", save_mode=True), await world.submit("other")
        await world.until_phase(other, Phase.RUNNING)
        record = world.record(saved)
        assert record is not None
        assert (record.status.phase, record.spec.workload.desired) == (Phase.SAVED, Desired.SAVED)
        await world.offload(world.jobs.start, world.admin.org, "saved", world.admin)
        await world.until_phase(saved, Phase.RUNNING)
