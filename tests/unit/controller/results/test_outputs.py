"""What a job leaves, from its last process to its last state, and beyond."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cloud_ml.controller.results import outputs
from cloud_ml.domain.jobs.kind import TrainJobRecord
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.engines.gang import GangKey
from cloud_ml.settings import OutputSettings
from cloud_ml.state.base import Fence
from cloud_ml.usecases.clock import system_clock
from cloud_ml.usecases.jobs.output_collection import CollectedOutputs, OutputCollection
from cloud_ml.usecases.jobs.outputs import Outputs
from support.controller_world import World

pytestmark = pytest.mark.anyio


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    yield world
    world.offload.close()


async def running(world: World, name: str) -> str:
    """A job that runs and has written a model."""
    uid = await world.submit(name)
    await world.until_phase(uid, Phase.RUNNING)
    (world.folders.of(uid) / "model.pt").write_bytes(b"weights")
    return uid


def stored(world: World) -> list[str]:
    return [info.key for info in world.objects.list("cloudml", ".outputs/").objects]


@pytest.mark.parametrize("code", [0, 3])
async def test_outputs_are_there_when_the_job_has_ended_well_or_not(
    world: World, code: int
) -> None:
    async with world.controller():
        uid = await running(world, "linear")
        world.engine.finish(GangKey(uid, 1), code)
        ended = await world.until_phase(uid, Phase.FAILED if code else Phase.SUCCEEDED)
    assert stored(world) == [f".outputs/linear-{uid}/model.pt"]
    assert ended.status.outputs is not None
    assert (ended.status.outputs.files, ended.status.outputs.bytes) == (1, 7)
    assert [event.reason for event in world.store.events(uid)][-1] == "OutputsSaved"


async def test_a_cancelled_job_keeps_its_outputs(world: World) -> None:
    async with world.controller():
        uid = await running(world, "linear")
        await world.offload(world.jobs.cancel, "default", "linear", world.admin)
        ended = await world.until_phase(uid, Phase.STOPPED)
    assert ended.status.reason == "Cancelled"
    assert stored(world) == [f".outputs/linear-{uid}/model.pt"]


async def test_an_attempt_that_is_followed_by_another_is_no_end(world: World) -> None:
    async with world.controller():
        uid = await world.submit("again", max_retries=1)
        await world.until_phase(uid, Phase.RUNNING)
        (world.folders.of(uid) / "checkpoint").touch()
        world.engine.finish(GangKey(uid, 1), 3)
        await world.until_phase(uid, Phase.RUNNING, attempt=2)
        assert stored(world) == []
        world.engine.finish(GangKey(uid, 2))
        await world.until_phase(uid, Phase.SUCCEEDED, attempt=2)
    assert stored(world) == [f".outputs/again-{uid}/checkpoint"]


async def test_a_job_that_is_deleted_while_it_runs_leaves_nothing(world: World) -> None:
    async with world.controller():
        uid = await running(world, "linear")
        await world.offload(world.jobs.delete, "default", "linear", world.admin)
        await world.until(uid, lambda record: record is None)
    assert stored(world) == []


async def test_outputs_go_with_a_job_that_is_deleted_later(world: World) -> None:
    async with world.controller():
        uid = await running(world, "linear")
        world.engine.finish(GangKey(uid, 1))
        await world.until_phase(uid, Phase.SUCCEEDED)
        assert stored(world) != []
        await world.offload(world.jobs.delete, "default", "linear", world.admin)
        await world.until(uid, lambda record: record is None)
    assert stored(world) == []


@pytest.mark.parametrize(("days", "kept"), [(0, True), (8, True), (6, False)])
async def test_outputs_are_kept_for_as_long_as_the_setting_says(
    world: World, days: int, kept: bool
) -> None:
    async with world.controller():
        uid = await running(world, "linear")
        world.engine.finish(GangKey(uid, 1))
        await world.until_phase(uid, Phase.SUCCEEDED)
        (world.folders.of("x") / "unrelated").touch()
        world.objects.put("cloudml", ".outputs/somebody-elses/file", b"made by a job, of no job")
    outputs_of = Outputs(world.store, world.storage, world.objects)
    later = outputs.JobOutputs(
        engine=world.folders,
        store=world.store,
        outputs=outputs_of,
        collection=OutputCollection(
            outputs_of, world.storage, world.objects, system_clock, OutputSettings()
        ),
        clock=lambda: system_clock() + timedelta(days=7),
        offload=world.offload,
        retention_days=days,
    )
    lease = world.store.acquire_lease("test", "here", ttl_s=60.0, now=system_clock())
    assert lease is not None
    for _ in range(2):
        await later.expire(Fence(lease.name, lease.epoch))
    record = world.record(uid)
    assert record is not None
    assert (
        record.status.outputs is not None,
        f".outputs/linear-{uid}/model.pt" in stored(world),
    ) == (kept, kept)
    assert [event.reason for event in world.store.events(uid)].count("OutputsExpired") == int(
        not kept
    )
    assert record.status.phase is Phase.SUCCEEDED
    assert ".outputs/somebody-elses/file" in stored(world)


class Slow:
    """A collection that waits until it is let go, or told to stop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go = threading.Semaphore(0), threading.Event()
        self._collect = OutputCollection.collect
        monkeypatch.setattr(
            OutputCollection,
            "collect",
            lambda *given, **named: self.collect(*given, **named),  # noqa: PLW0108
        )
        monkeypatch.setattr(outputs, "_QUICK_S", 0.01)

    def collect(
        self, collection: OutputCollection, job: TrainJobRecord, directory: Any, *, stop: Any
    ) -> CollectedOutputs:
        self.begun.release()
        while not self.go.wait(0.005):
            if stop():
                break
        return self._collect(collection, job, directory, stop=stop)


async def test_a_job_says_that_its_outputs_are_being_saved(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(monkeypatch)
    async with world.controller():
        uid = await running(world, "linear")
        other = await world.submit("other")
        world.engine.finish(GangKey(uid, 1))
        seen = await world.until_phase(uid, Phase.FINISHING)
        await world.until_phase(other, Phase.RUNNING)  # nobody waits for it
        slow.go.set()
        ended = await world.until_phase(uid, Phase.SUCCEEDED)
    assert (seen.status.reason, seen.status.outputs) == ("SavingOutputs", None)
    assert seen.status.message == "the code has ended; its outputs are being saved"
    process = (await world.engine.observed(uid))[0].processes[0]
    assert seen.status.finished_at == ended.status.finished_at == process.finished_at, (
        "the saving takes no time of it"
    )
    assert [event.reason for event in world.store.events(uid)].count("SavingOutputs") == 1
    assert slow.begun.acquire(timeout=0)
    assert not slow.begun.acquire(timeout=0)  # it was begun once, however often it was looked at


async def test_a_cancelled_job_says_that_its_outputs_are_being_saved(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(monkeypatch)
    async with world.controller():
        uid = await running(world, "linear")
        await world.offload(world.jobs.cancel, "default", "linear", world.admin)
        seen = await world.until(
            uid, lambda job: job is not None and job.status.reason == "SavingOutputs"
        )
        slow.go.set()
        ended = await world.until_phase(uid, Phase.STOPPED)
    assert seen is not None
    assert (seen.status.phase, seen.status.exit_code) == (Phase.STOPPING, ended.status.exit_code)
    assert seen.status.finished_at == ended.status.finished_at is not None
    assert ended.status.reason == "Cancelled"
    assert [event.reason for event in world.store.events(uid)].count("SavingOutputs") == 1


async def test_a_job_that_is_deleted_while_its_outputs_are_saved(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(monkeypatch)
    async with world.controller():
        uid = await running(world, "linear")
        world.engine.finish(GangKey(uid, 1))
        await world.until_phase(uid, Phase.FINISHING)
        await world.offload(world.jobs.delete, "default", "linear", world.admin)
        await world.until(uid, lambda record: record is None)
    assert stored(world) == []
    assert not slow.go.is_set()  # it was told to stop, and nobody waited for its end


async def test_the_next_controller_saves_what_one_that_died_did_not(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(monkeypatch)
    async with world.controller():
        uid = await running(world, "linear")
        world.engine.finish(GangKey(uid, 1))
        await world.until_phase(uid, Phase.FINISHING)
    slow.go.set()
    async with world.controller("two"):
        ended = await world.until_phase(uid, Phase.SUCCEEDED)
    assert stored(world) == [f".outputs/linear-{uid}/model.pt"]
    assert ended.status.outputs is not None
    assert ended.status.outputs.files == 1


async def test_a_collection_that_cannot_be_done_leaves_the_job_its_own_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> CollectedOutputs:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(OutputCollection, "collect", broken)
    async with world.controller():
        uid = await running(world, "linear")
        world.engine.finish(GangKey(uid, 1))
        ended = await world.until_phase(uid, Phase.SUCCEEDED)
    assert ended.status.outputs is None
    last = world.store.events(uid)[-1]
    assert (last.reason, last.message) == (
        "OutputsNotSaved", "could not save outputs, because OSError: [Errno 5] Input/output error",
    )  # fmt: skip
