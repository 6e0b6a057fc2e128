"""Every step of a pass hangs for one record: others go on, the record is told which step, and it
goes on afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from cloud_ml.domain.services.kind import MODEL_SERVICE
from cloud_ml.domain.workloads.phases import Phase
from support.controller_world import World
from support.faulty import Faults
from unit.controller.runtime.test_failing_passes import (
    a_job_that_is_cancelled,
    a_job_that_succeeds,
    a_service_that_goes,
    make_service,
    phase,
    replicas,
    until,
)

pytestmark = pytest.mark.anyio

LIMIT_S = 0.2
OF_JOBS = {
    ("store", "get"): "read the record",
    ("store", "commit_status"): "commit the new state",
    ("store", "delete"): "remove the record",
    ("engine", "observed"): "look at its processes",
    ("engine", "ensure"): "start the attempt",
    ("engine", "stop"): "stop the attempt",
    ("engine", "forget"): "remove what its attempts left",
    ("files", "provide"): "fetch what it runs",
    ("recipe", "plan"): "plan the attempt",
    ("deploy", "deploy"): "export the model",
}
OF_ORGANISATIONS = {
    ("storage", "mountable"): "plan the attempt",
    ("packages", "fetch"): "the trainer is being copied",
    ("objects", "read"): "the trainer is being copied",
}
OF_SERVICES = {
    ("store", "get"): "read the record",
    ("store", "create"): "make and end replicas",
    ("store", "commit_status"): "commit the new state",
}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    yield world
    world.offload.close()


def failure_names_step(world: World, uid: str, step: str) -> bool:
    return any(
        event.reason == "ReconcileFailed" and step in event.message
        for event in world.store.events(uid)
    )


async def others_live(world: World) -> None:
    healthy = await world.submit("healthy"), await world.submit("cancelled")
    await a_job_that_succeeds(world, healthy[0])
    await a_job_that_is_cancelled(world, healthy[1])


@pytest.mark.parametrize(
    ("point", "step"), OF_JOBS.items(), ids=lambda each: "" if isinstance(each, str) else each[1]
)
async def test_a_step_of_a_job_hangs(world: World, point: tuple[str, str], step: str) -> None:
    faults = Faults()
    async with world.controller(faults=faults, workers=1, max_running_jobs=4, pass_limit_s=LIMIT_S):
        exporting: dict[str, Any] = {
            "model_name": "m",
            "model_version": "1",
            "model_export_path": "fds://cloudml/m",
        }
        ends = await world.submit(
            "ends", save_mode=True, **(exporting if point[0] == "deploy" else {})
        )
        cancelled = await world.submit("ends-early", save_mode=True)
        faults.victims, faults.armed, faults.hangs = {ends, cancelled}, point, True
        for name in ("ends", "ends-early"):
            world.jobs.start(world.admin.org, name, world.admin)
        lives = {ends: a_job_that_succeeds, cancelled: a_job_that_is_cancelled}
        tasks = [asyncio.create_task(life(world, uid)) for uid, life in lives.items()]
        await until(lambda: faults.hits, f"{point} is reached")
        await others_live(world)
        await until(
            lambda: (
                failure_names_step(world, ends, step) or failure_names_step(world, cancelled, step)
            ),
            "the step is named",
        )
        faults.go_on()
        await asyncio.gather(*tasks)


@pytest.mark.parametrize(
    ("point", "step"),
    OF_ORGANISATIONS.items(),
    ids=lambda each: "" if isinstance(each, str) else each[1],
)
async def test_a_step_that_speaks_of_the_organisation_hangs(
    world: World, point: tuple[str, str], step: str
) -> None:
    other = world.identities.create_organisation("victims", default_bucket="victims")
    world.storage.create_bucket(other, "victims")
    world.objects.put("victims", "t.tar.gz", b"theirs")
    zoe = world.identities.create_key(other, "zoe")
    faults = Faults(point, hangs=True, victims={"'victims'"})
    async with world.controller(faults=faults, workers=1, max_running_jobs=6, pass_limit_s=LIMIT_S):
        uids = [
            await world.submit(f"theirs-{number}", caller=zoe, trainer_uri="fds://victims/t.tar.gz")
            for number in range(3)
        ]
        await until(lambda: faults.hits, f"{point} is reached")
        await others_live(world)
        await until(
            lambda: any(failure_names_step(world, uid, step) for uid in uids), "the step is named"
        )
        faults.go_on()
        for uid in uids:
            await world.until_phase(uid, Phase.RUNNING)


@pytest.mark.parametrize(
    ("point", "step"),
    OF_SERVICES.items(),
    ids=lambda each: "" if isinstance(each, str) else each[1],
)
async def test_a_step_of_a_service_hangs(world: World, point: tuple[str, str], step: str) -> None:
    faults = Faults()
    async with world.controller(faults=faults, pass_limit_s=LIMIT_S):
        await until(lambda: faults.calls["gateway", "keep"], "the term has begun")
        victims = [make_service(world, f"victim-{number}") for number in range(3)]
        faults.victims, faults.armed, faults.hangs = set(victims), point, True
        await until(lambda: faults.hits, f"{point} is reached")
        await a_service_that_goes(world, make_service(world, "healthy"))
        await until(
            lambda: any(failure_names_step(world, uid, step) for uid in victims),
            "the step is named",
        )
        faults.go_on()
        for uid in victims:
            await a_service_that_goes(world, uid)


async def test_replicas_that_cannot_be_started_hold_up_no_others(world: World) -> None:
    """There are few workers for replicas."""
    faults = Faults()
    async with world.controller(faults=faults, pass_limit_s=LIMIT_S):
        await until(lambda: faults.calls["gateway", "keep"], "the term has begun")
        faults.victims, faults.armed, faults.hangs = {"victim"}, ("engine", "ensure"), True
        victims = [make_service(world, f"victim-{number}") for number in range(3)]
        faults.victims = set(victims)  # a gang names its replica, which is named after its service
        await until(lambda: faults.hits, "the engine is asked")
        await a_service_that_goes(world, make_service(world, "healthy"))
        first = replicas(world, victims[0])[0]
        await until(
            lambda: failure_names_step(world, first, "start the attempt"), "the step is named"
        )
        faults.go_on()
        await until(lambda: _runs(world, victims[0]), "it runs")


def _runs(world: World, service: str) -> bool:
    record = world.store.get(MODEL_SERVICE, service)
    return record is not None and record.status.phase == "Running"


async def test_an_attempt_that_hangs_in_its_start_fails_at_the_limit_and_gives_its_place_back(
    world: World,
) -> None:
    faults = Faults(("recipe", "plan"), hangs=True)
    async with world.controller(
        faults=faults, start_timeout_s=1.0, max_running_jobs=1, pass_limit_s=0.1
    ):
        victim = await world.submit("victim", save_mode=True)
        faults.victims = {victim}
        world.jobs.start(world.admin.org, "victim", world.admin)
        await world.until_phase(victim, Phase.STARTING)
        behind = await world.submit("behind")
        failed = await world.until_phase(victim, Phase.FAILED)
        assert failed.status.reason == "StartTimeout"
        await world.until_phase(behind, Phase.RUNNING)
        starts = faults.calls["engine", "ensure"]
        faults.go_on()  # what returns so late takes no further step
        await until(
            lambda: not faults.hangs and phase(world, victim) is Phase.FAILED, "it stays failed"
        )
        await world.offload(lambda: None)
        assert faults.calls["engine", "ensure"] == starts


async def test_a_store_that_does_not_take_an_event_holds_up_nobody(world: World) -> None:
    faults = Faults(("store", "add_event"), hangs=True)
    async with world.controller(faults=faults, workers=1, max_running_jobs=4, pass_limit_s=LIMIT_S):
        victim = await world.submit("victim", save_mode=True)
        faults.victims = {victim}
        places = world.engine.places

        def broken(uid: str, tasks: Sequence[str] = ()) -> Any:
            if uid == victim and faults.hangs:
                raise RuntimeError("a fault of ours")
            return places(uid, tasks)

        world.engine.places = broken  # type: ignore[method-assign]
        world.jobs.start(world.admin.org, "victim", world.admin)
        await until(lambda: faults.hits, "an event is written")
        await others_live(world)
        faults.go_on()
        await world.until_phase(victim, Phase.RUNNING)
