"""Every step of a pass fails for one record: others go on, the record is told why, and it
recovers or fails.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from cloud_ml.controller.runtime.failed_passes import describe
from cloud_ml.domain.records import Event
from cloud_ml.domain.services.kind import MODEL_SERVICE, REPLICA
from cloud_ml.domain.services.status import ServicePhase
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.engines.gang import GangKey
from cloud_ml.errors import InvalidRequest, NotFound, Unavailable
from cloud_ml.models.services.model_service import ModelService
from cloud_ml.objects.local import LocalObjectStore
from cloud_ml.usecases.clock import system_clock
from support.controller_world import World
from support.faulty import Faults

pytestmark = pytest.mark.anyio

Lives = dict[str, Callable[[World, str], Coroutine[Any, Any, None]]]
ERRORS = [
    RuntimeError("a fault of ours"),
    OSError(errno.EIO, "Input/output error", "/data/secret-path"),
    Unavailable("a part is away"),
    NotFound("it is not there"),
    InvalidRequest("it is malformed"),
]
FAILURE_REASONS = ("ReconcileFailed", "StartFailed", "Restarting")
OF_JOBS = [
    ("store", "get"),
    ("store", "commit_status"),
    ("store", "delete"),
    ("store", "add_event"),
    ("engine", "observed"),
    ("engine", "ensure"),
    ("engine", "stop"),
    ("engine", "forget"),
    ("engine", "places"),
    ("files", "provide"),
    ("files", "forget"),
    ("recipe", "plan"),
    ("deploy", "deploy"),
]
OF_ORGANISATIONS = [
    ("store", "find"),
    ("storage", "mountable"),
    ("storage", "owns"),
    ("packages", "fetch"),
    ("objects", "head"),
    ("objects", "read"),
]
OF_SERVICES = [
    ("store", "get"),
    ("store", "list"),
    ("store", "create"),
    ("store", "commit_status"),
    ("store", "delete"),
    ("gateway", "set"),
    ("gateway", "drop"),
]
OF_REPLICAS = [
    ("store", "get"),
    ("store", "commit_status"),
    ("store", "change_spec"),
    ("store", "request_delete"),
    ("store", "delete"),
    ("engine", "observed"),
    ("engine", "ensure"),
    ("engine", "stop"),
    ("engine", "forget"),
    ("engine", "places"),
    ("files", "provide"),
    ("recipe", "plan"),
    ("endpoints", "open_connection"),
    ("endpoints", "address"),
]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    yield world
    world.offload.close()


async def until(holds: Callable[[], object], what: str) -> None:
    try:
        async with asyncio.timeout(60):
            while not holds():
                await asyncio.sleep(0.002)
    except TimeoutError:
        raise AssertionError(f"never: {what}") from None


def failures(world: World, uid: str) -> list[Event]:
    return [event for event in world.store.events(uid) if event.reason in FAILURE_REASONS]


async def a_job_that_succeeds(world: World, uid: str) -> None:
    """From its start to its removal."""
    await until(lambda: phase(world, uid) in (Phase.RUNNING, Phase.FAILED), f"{uid} runs")
    if phase(world, uid) is Phase.RUNNING:
        world.engine.finish(GangKey(uid, 1))
        await until(lambda: phase(world, uid) is Phase.SUCCEEDED, f"{uid} succeeds")
    await world.offload(
        world.jobs.delete, world.admin.org, world.jobs.get(uid).key.name, world.admin
    )
    await until(lambda: world.record(uid) is None, f"{uid} is gone")


async def a_job_that_is_cancelled(world: World, uid: str) -> None:
    await until(lambda: phase(world, uid) in (Phase.RUNNING, Phase.FAILED), f"{uid} runs")
    if phase(world, uid) is Phase.RUNNING:
        await world.offload(
            world.jobs.cancel, world.admin.org, world.jobs.get(uid).key.name, world.admin
        )
    await until(lambda: phase(world, uid) in (Phase.STOPPED, Phase.FAILED), f"{uid} is stopped")


def phase(world: World, uid: str) -> Phase | None:
    record = world.record(uid)
    return record.status.phase if record is not None else None


def collect_failures(world: World, seen: list[Event], uids: set[str]) -> bool:
    """Keep what was said, also of records that go."""
    for uid in uids:
        seen += [event for event in failures(world, uid) if event not in seen]
    return bool(seen)


async def lives(world: World, faults: Faults, victims: Lives) -> None:
    """Live the lives of the victims. Once they are stuck, others live theirs; then the fault
    ends.
    """
    point, seen = faults.armed, list[Event]()
    tasks = [asyncio.create_task(life(world, uid)) for uid, life in victims.items()]
    await until(
        lambda: faults.hits > 3 or all(task.done() for task in tasks), f"{point} is reached"
    )
    assert faults.hits, f"{point} was never called"
    healthy = await world.submit("healthy"), await world.submit("cancelled")
    await a_job_that_succeeds(world, healthy[0])
    await a_job_that_is_cancelled(world, healthy[1])
    await until(
        lambda: collect_failures(world, seen, set(victims)) or excused(world, faults, victims),
        "it is told",
    )
    assert len(seen) <= 2 * len(victims), "the same is told once"
    assert not any("secret-path" in event.message for event in seen)
    faults.error = None
    await asyncio.gather(*tasks)


def excused(world: World, faults: Faults, victims: Lives) -> bool:
    """Where no event can be had: the record failed with the reason, is gone, or events are what
    fails.
    """
    ended = [
        phase(world, uid) in (None, Phase.FAILED, Phase.STOPPED, Phase.SUCCEEDED) for uid in victims
    ]
    return faults.armed == ("store", "add_event") or all(ended)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("point", OF_JOBS, ids=".".join)
async def test_a_step_of_a_job_fails(
    world: World, point: tuple[str, str], error: Exception
) -> None:
    faults = Faults()
    if point == ("store", "add_event"):
        world.engine.places = _failing(world.engine.places, faults)  # type: ignore[assignment, method-assign]
    async with world.controller(faults=faults, workers=2, max_running_jobs=4):
        exporting: dict[str, Any] = {
            "model_name": "m",
            "model_version": "1",
            "model_export_path": "fds://cloudml/m",
        }
        ends = await world.submit(
            "ends", save_mode=True, **(exporting if point[0] == "deploy" else {})
        )
        cancelled = await world.submit("ends-early", save_mode=True)
        faults.victims, faults.armed, faults.error = {ends, cancelled}, point, error
        for name in ("ends", "ends-early"):
            world.jobs.start(world.admin.org, name, world.admin)
        await lives(world, faults, {ends: a_job_that_succeeds, cancelled: a_job_that_is_cancelled})


def _failing(places: Callable[..., object], faults: Faults) -> Callable[..., object]:
    def fail(uid: str, tasks: Sequence[str] = ()) -> object:
        if uid in faults.victims and faults.error is not None:
            raise faults.error.with_traceback(None)
        return places(uid, tasks)

    return fail


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("point", OF_ORGANISATIONS, ids=".".join)
async def test_a_step_that_speaks_of_the_organisation_fails(
    world: World, point: tuple[str, str], error: Exception
) -> None:
    other = world.identities.create_organisation("victims", default_bucket="victims")
    world.storage.create_bucket(other, "victims")
    world.objects.put("victims", "t.tar.gz", b"theirs")
    zoe = world.identities.create_key(other, "zoe")
    faults = Faults(point, error, {"'victims'"})
    async with world.controller(faults=faults, workers=2, max_running_jobs=4):
        uid = await world.submit("theirs", caller=zoe, trainer_uri="fds://victims/t.tar.gz")

        async def ends(world: World, uid: str) -> None:
            await until(
                lambda: phase(world, uid) in (Phase.RUNNING, Phase.FAILED), "it runs, or fails"
            )
            if phase(world, uid) is Phase.FAILED:
                assert world.jobs.get(uid).status.message

        await lives(world, faults, {uid: ends})


@pytest.mark.parametrize("error", [ERRORS[0], *ERRORS[2:4]], ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(
    ("whose", "point"),
    [*(("service", each) for each in OF_SERVICES), *(("replica", each) for each in OF_REPLICAS)],
    ids=lambda each: each if isinstance(each, str) else ".".join(each),
)
async def test_a_step_of_a_service_or_a_replica_fails(
    world: World, whose: str, point: tuple[str, str], error: Exception
) -> None:
    faults = Faults()
    async with world.controller(faults=faults, workers=2, max_running_jobs=4):
        await until(lambda: faults.calls["gateway", "keep"], "the term has begun")
        victim = make_service(world, "victim")
        if whose == "service":
            faults.victims, faults.armed, faults.error = {victim}, point, error
        else:
            await until(lambda: replicas(world, victim), "there is a replica")
            faults.victims, faults.armed, faults.error = set(replicas(world, victim)), point, error
        seen: list[Event] = []
        life = asyncio.create_task(a_service_that_goes(world, victim))
        ends_attempts = point == ("files", "provide") and isinstance(error, NotFound)
        again = 1 if ends_attempts else 3  # the pause doubles from attempt to attempt
        await until(lambda: faults.hits > again or life.done(), f"{point} is reached")
        healthy = make_service(world, "healthy")
        await a_service_that_goes(world, healthy)
        if (
            faults.hits and not life.done() and point[0] != "endpoints"
        ):  # a replica that is not reached is asked again
            await until(
                lambda: collect_failures(world, seen, {victim, *faults.victims}), "it is told"
            )
        faults.error = None
        await life
        assert faults.hits or whose == "replica", f"{point} was never called"


async def a_service_that_goes(world: World, uid: str) -> None:
    """Started, answering, deleted."""

    def stands(expected: ServicePhase) -> bool:
        record = world.store.get(MODEL_SERVICE, uid)
        return record is not None and record.status.phase is expected

    await until(lambda: stands(ServicePhase.RUNNING), f"{uid} answers")
    record = world.store.get(MODEL_SERVICE, uid)
    assert record is not None
    assert uid in world.gateway.routes
    world.store.request_delete(MODEL_SERVICE, uid, now=system_clock())
    await until(lambda: world.store.get(MODEL_SERVICE, uid) is None, f"{uid} is gone")
    assert replicas(world, uid) == []


def make_service(world: World, name: str) -> str:
    service = ModelService(name, "1", "fds://cloudml/m", replicas=1)
    return world.services.create(world.admin, service).key.uid


def replicas(world: World, service: str) -> list[str]:
    lines = world.store.list(REPLICA, limit=1000).items
    return [line.key.uid for line in lines if line.key.name.startswith(service)]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_a_record_that_cannot_be_read_when_a_term_begins(
    world: World, error: Exception
) -> None:
    faults = Faults()
    async with world.controller(faults=faults):
        victim, running = await world.submit("victim"), await world.submit("running")
        service = make_service(world, "s")
        for uid in (victim, running):
            await world.until_phase(uid, Phase.RUNNING)
        await until(lambda: replicas(world, service), "there is a replica")
    faults.victims, faults.armed, faults.error = (
        {victim, service, *replicas(world, service)},
        ("store", "get"),
        error,
    )
    if isinstance(
        error, Unavailable
    ):  # then the database is away for all: the term begins when it is back
        faults.victims = {victim}
    async with world.controller(faults=faults):
        if isinstance(error, Unavailable):
            await until(lambda: faults.hits > 2, "the term is begun again and again")
            faults.error = None
        world.engine.finish(GangKey(running, 1))
        await world.until_phase(running, Phase.SUCCEEDED)
        if faults.error is not None:
            await until(
                lambda: failures(world, victim) and failures(world, service), "they are told"
            )
        faults.error = None
        world.engine.finish(GangKey(victim, 1))
        await world.until_phase(victim, Phase.SUCCEEDED)


async def test_what_can_never_start_fails_at_the_limit_and_gives_its_place_back(
    world: World,
) -> None:
    faults = Faults(("recipe", "plan"), RuntimeError("a fault of ours"))
    async with world.controller(faults=faults, start_timeout_s=0.5, max_running_jobs=1):
        victim = await world.submit("victim", save_mode=True)
        faults.victims = {victim}
        world.jobs.start(world.admin.org, "victim", world.admin)
        await world.until_phase(victim, Phase.STARTING)
        behind = await world.submit("behind")
        failed = await world.until_phase(victim, Phase.FAILED)
        assert (failed.status.reason, failed.status.message) == (
            "StartTimeout", "attempt 1 could not be started within the start limit",
        )  # fmt: skip
        assert [event.message for event in failures(world, victim)] == [
            "the next step failed and is tried again: an internal error (RuntimeError); see "
            "the server's log"
        ]
        await world.until_phase(behind, Phase.RUNNING)


async def test_a_bucket_without_its_folder_fails_the_attempt_and_says_so(tmp_path: Path) -> None:
    world = World(tmp_path, LocalObjectStore(tmp_path / "objects"))
    world.engine.has_bucket = world.objects.has_bucket
    try:
        other = world.identities.create_organisation("victims")
        zoe = world.identities.create_key(other, "zoe")
        world.storage.create_bucket(other, "lost")
        world.storage.create_bucket(other, "kept")
        world.objects.put("kept", "t.tar.gz", b"code")
        (tmp_path / "objects" / "lost").rmdir()
        async with world.controller():
            victim = await world.submit("victim", caller=zoe, trainer_uri="fds://kept/t.tar.gz")
            healthy = await world.submit("healthy")
            failed = await world.until_phase(victim, Phase.FAILED)
            await world.until_phase(healthy, Phase.RUNNING)
            assert failed.status.reason == "StartFailed"
            assert failed.status.message == (
                "the server has lost the folder of the bucket lost; ask its operator to start it "
                "again"
            )
            world.storage.repair()
            repaired = await world.submit("repaired", caller=zoe, trainer_uri="fds://kept/t.tar.gz")
            await world.until_phase(repaired, Phase.RUNNING)
    finally:
        world.offload.close()


def test_an_event_holds_no_path_of_the_server() -> None:
    error = Unavailable("no answer of /data/state.db", public_message="no answer of the database")
    assert describe(error).endswith(": no answer of the database")
