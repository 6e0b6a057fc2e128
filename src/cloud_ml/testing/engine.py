"""The contract of an engine as a test class. Subclass it and provide its fixtures."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace

import pytest

from cloud_ml.domain.addresses import Address
from cloud_ml.domain.observed import GangState, ObservedGang
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.base import (
    Endpoints,
    Engine,
    EnvironmentPlan,
    Gang,
    GangKey,
    Mount,
    ProcessPlan,
    TrainerSource,
)
from cloud_ml.errors import Conflict, Unavailable
from cloud_ml.models import codec

_numbers = itertools.count(1)
_LIMIT_S = 30.0
LISTENING = """
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
while True:
    with listener.accept()[0] as connection:
        connection.sendall(sys.argv[2].encode())
"""
"""A program that sends its second argument to each who connects to the socket that is its first."""


@pytest.mark.anyio
class EngineContract:
    """What every engine promises (see the table in ``engines.base``).

    Fixtures to provide: ``engine`` (started), ``reopen`` (a callable that returns another engine
    object for the same machine, as a server does after a restart), ``bucket`` (the name of a
    bucket that the engine can mount, with the object ``greeting``, whose content is ``hello`` and
    a newline) and ``dial`` (a callable that connects to an address without the engine, as the
    gateway does, and returns all that is sent).
    """

    # ---- how this engine spells what a process does

    def printing(self, text: str) -> tuple[str, ...]:
        return ("sh", "-c", f"echo {text}")

    def exiting(self, code: int) -> tuple[str, ...]:
        return ("sh", "-c", f"exit {code}")

    def waiting(self) -> tuple[str, ...]:
        return ("sh", "-c", "echo waiting; exec sleep 600")

    def stubborn(self) -> tuple[str, ...]:
        return ("sh", "-c", "trap '' TERM; echo waiting; while true; do sleep 1; done")

    def showing(self, file: str) -> tuple[str, ...]:
        return ("sh", "-c", f"cat {file}")

    def listening(self, name: str, text: str) -> tuple[str, ...]:
        return ("python3", "-c", LISTENING, name, text)

    # ---- tests

    async def test_a_gang_runs_to_a_good_end(self, engine: Engine) -> None:
        gang = _gang(self.printing("hello"))
        await engine.ensure(gang)
        seen = await _over(engine, gang.key)
        assert (seen.state, seen.reason) == (GangState.EXITED, Reason.COMPLETED)
        assert seen.succeeded
        assert seen.unsaved_files.sentence == ""
        assert await _log(engine, gang.key) == b"hello\n"

    async def test_a_bad_end_names_its_code(self, engine: Engine) -> None:
        gang = _gang(self.exiting(3))
        await engine.ensure(gang)
        seen = await _over(engine, gang.key)
        assert seen.reason is Reason.NON_ZERO_EXIT
        assert seen.processes[0].exit_code == 3
        assert "3" in seen.message

    async def test_ensure_twice_starts_one_gang(self, engine: Engine) -> None:
        gang = _gang(self.printing("once"))
        await engine.ensure(gang)
        await engine.ensure(gang)
        await _over(engine, gang.key)
        await engine.ensure(gang)
        assert await _log(engine, gang.key) == b"once\n"

    async def test_two_engines_start_one_gang(
        self, engine: Engine, reopen: Callable[[], Awaitable[Engine]]
    ) -> None:
        gang = _gang(self.printing("once"))
        other = await reopen()
        await asyncio.gather(*(e.ensure(gang) for e in (engine, other, engine, other)))
        await _over(engine, gang.key)
        assert await _log(other, gang.key) == b"once\n"

    async def test_a_new_engine_object_sees_what_the_old_one_started(
        self, engine: Engine, reopen: Callable[[], Awaitable[Engine]]
    ) -> None:
        gang = _gang(self.waiting())
        await engine.ensure(gang)
        await _reached(engine, gang.key, GangState.RUNNING)
        other = await reopen()
        assert [seen.state for seen in await other.observed(gang.key.job_uid)] == [
            GangState.RUNNING
        ]
        await other.stop(gang.key, grace_s=5.0)
        assert (await _over(engine, gang.key)).state is GangState.EXITED

    async def test_stop_ends_a_running_gang(self, engine: Engine) -> None:
        gang = _gang(self.waiting())
        await engine.ensure(gang)
        await _reached(engine, gang.key, GangState.RUNNING)
        await engine.stop(gang.key, grace_s=5.0)
        seen = await _over(engine, gang.key)
        assert seen.reason is Reason.CANCELLED
        await engine.stop(gang.key, grace_s=5.0)

    async def test_a_second_stop_without_grace_ends_the_stubborn(self, engine: Engine) -> None:
        gang = _gang(self.stubborn())
        await engine.ensure(gang)
        await _reached(engine, gang.key, GangState.RUNNING)
        await engine.stop(gang.key, grace_s=300.0)
        assert not (await engine.observed(gang.key.job_uid))[0].state.over
        await engine.stop(gang.key, grace_s=0.0)
        assert (await _over(engine, gang.key)).reason is Reason.CANCELLED

    async def test_a_second_stop_with_less_grace_shortens_the_first(self, engine: Engine) -> None:
        gang = _gang(self.stubborn())
        await engine.ensure(gang)
        await _reached(engine, gang.key, GangState.RUNNING)
        await engine.stop(gang.key, grace_s=300.0)
        await engine.stop(gang.key, grace_s=0.2)
        await engine.stop(gang.key, grace_s=200.0)
        assert (await _over(engine, gang.key)).reason is Reason.CANCELLED

    async def test_a_tombstone_keeps_a_gang_from_starting(
        self, engine: Engine, reopen: Callable[[], Awaitable[Engine]]
    ) -> None:
        gang = _gang(self.printing("never"))
        await engine.stop(gang.key, grace_s=0.0)
        await engine.stop(gang.key, grace_s=5.0)
        await engine.ensure(gang)
        await (await reopen()).ensure(gang)
        seen = await engine.observed(gang.key.job_uid)
        assert [g.state for g in seen] == [GangState.TOMBSTONED]
        assert await engine.log_streams(gang.key.job_uid) == []

    async def test_stop_of_something_gone_is_success(self, engine: Engine) -> None:
        gang = _gang(self.printing("short"))
        await engine.ensure(gang)
        before = await _over(engine, gang.key)
        await engine.stop(gang.key, grace_s=0.0)
        assert (await engine.observed(gang.key.job_uid))[0].reason == before.reason

    async def test_attempts_are_told_apart(self, engine: Engine) -> None:
        first = _gang(self.exiting(1))
        second = _gang(self.printing("again"), key=GangKey(first.key.job_uid, 2))
        await engine.ensure(first)
        await _over(engine, first.key)
        await engine.ensure(second)
        await _over(engine, second.key)
        seen = await engine.observed(first.key.job_uid)
        assert [(g.attempt, g.succeeded) for g in seen] == [(1, False), (2, True)]
        assert await _log(engine, second.key) == b"again\n"

    async def test_changes_name_what_lives_and_what_happens(self, engine: Engine) -> None:
        living = _gang(self.waiting())
        await engine.ensure(living)
        await _reached(engine, living.key, GangState.RUNNING)
        changes = engine.changes()
        await _until_named(changes, living.key.job_uid)
        later = _gang(self.printing("x"))
        await engine.ensure(later)
        await _until_named(changes, later.key.job_uid)
        await engine.stop(living.key, grace_s=0.0)
        await _over(engine, living.key)

    async def test_a_follower_gets_everything_and_then_the_end(self, engine: Engine) -> None:
        gang = _gang(self.waiting())
        await engine.ensure(gang)
        await _reached(engine, gang.key, GangState.RUNNING)
        follower = asyncio.create_task(_collect(engine.logs(gang.key, "master-0", follow=True)))
        await engine.stop(gang.key, grace_s=5.0)
        await asyncio.wait_for(follower, _LIMIT_S)

    @pytest.mark.parametrize("reason", [Reason.TRAINER_NOT_FOUND, Reason.MODEL_NOT_FOUND])
    async def test_a_missing_trainer_ends_the_attempt_with_that_reason(
        self, engine: Engine, reason: Reason
    ) -> None:
        problem = "fds://b/none.tar.gz does not exist"
        plan = EnvironmentPlan(
            trainer=TrainerSource("", "none.tar.gz", problem, reason), module="trainer.task"
        )
        gang = _gang(self.printing("never"), environment=plan)
        await engine.ensure(gang)
        seen = await _over(engine, gang.key)
        assert (seen.reason, seen.message) == (reason, problem)

    async def test_a_gang_sees_the_bucket_that_it_mounts(self, engine: Engine, bucket: str) -> None:
        key = _key()
        target = f"{engine.places(key.job_uid).storage}/{bucket}"
        mounts = (Mount(bucket, target, writable=True),)
        gang = _gang(self.showing(f"{target}/greeting"), key=key, mounts=mounts)
        await engine.ensure(gang)
        seen = await _over(engine, key)
        assert (seen.reason, await _log(engine, key)) == (Reason.COMPLETED, b"hello\n")

    async def test_a_gang_with_a_bucket_that_is_gone_is_not_taken(
        self, engine: Engine, bucket: str
    ) -> None:
        """It was removed after the gang was planned: the next plan knows of that."""
        key = _key()
        storage = engine.places(key.job_uid).storage
        mounts = [Mount(name, f"{storage}/{name}", writable=True) for name in (bucket, "absent")]
        gang = _gang(self.printing("planned again"), key=key, mounts=tuple(mounts))
        with pytest.raises(Unavailable, match="bucket absent"):
            await engine.ensure(gang)
        assert await engine.observed(key.job_uid) == []
        await engine.ensure(replace(gang, mounts=gang.mounts[:1]))
        assert (await _over(engine, key)).reason is Reason.COMPLETED
        assert await _log(engine, key) == b"planned again\n"

    async def test_no_gang_runs_without_the_file_of_its_trainer(self, engine: Engine) -> None:
        plan = EnvironmentPlan(
            trainer=TrainerSource("0" * 64, "none.tar.gz"), module="trainer.task"
        )
        gang = _gang(self.printing("never"), environment=plan)
        await engine.ensure(gang)
        seen = await _over(engine, gang.key)
        assert seen.reason is Reason.TRAINER_NOT_FOUND
        assert "none.tar.gz" in seen.message
        assert b"never" not in await _log(engine, gang.key)

    async def test_a_process_that_listens_is_reached_at_its_address(
        self,
        engine: Engine,
        reopen: Callable[[], Awaitable[Engine]],
        dial: Callable[[Address], Awaitable[bytes]],
    ) -> None:
        endpoints = _endpoints(engine)
        gang, neighbour = _gang(self.listening("a.sock", "hello")), _gang(self.waiting())
        for each in (gang, neighbour):
            await engine.ensure(each)
            await _reached(engine, each.key, GangState.RUNNING)
        uid = gang.key.job_uid
        assert await _said(endpoints, uid, "a.sock") == b"hello"
        address = endpoints.address(uid, "a.sock")
        assert await dial(_sent(address)) == b"hello"
        later = _endpoints(await reopen())
        assert later.address(uid, "a.sock") == address
        assert await _said(later, uid, "a.sock") == b"hello"
        for other in ((neighbour.key.job_uid, "a.sock"), (uid, "b.sock")):
            with pytest.raises(Unavailable):
                await endpoints.open_connection(*other)
        for each in (gang, neighbour):
            await engine.stop(each.key, grace_s=0.0)
            await _over(engine, each.key)
        with pytest.raises(Unavailable):
            await endpoints.open_connection(uid, "a.sock")

    @pytest.mark.parametrize("name", ["", ".", "..", "../a.sock", "/a.sock", "a/b.sock", "a\0b"])
    async def test_nobody_is_reached_by_the_name_of_a_path(self, engine: Engine, name: str) -> None:
        endpoints, gang = _endpoints(engine), _gang(self.listening("a.sock", "hello"))
        await engine.ensure(gang)
        await _reached(engine, gang.key, GangState.RUNNING)
        uid = gang.key.job_uid
        assert await _said(endpoints, uid, "a.sock") == b"hello"
        for wrong in ((uid, name), (name, "a.sock"), (f"x/../{uid}", "a.sock")):
            with pytest.raises(Unavailable):
                await endpoints.open_connection(*wrong)
        await engine.stop(gang.key, grace_s=0.0)
        await _over(engine, gang.key)

    async def test_forget_drops_logs_and_keeps_the_gate(self, engine: Engine) -> None:
        gang = _gang(self.printing("secret"))
        await engine.ensure(gang)
        await _over(engine, gang.key)
        await engine.forget(gang.key.job_uid)
        assert await engine.log_streams(gang.key.job_uid) == []
        await engine.ensure(gang)
        assert all(seen.state.over for seen in await engine.observed(gang.key.job_uid))
        await engine.forget(gang.key.job_uid)

    async def test_forget_refuses_a_living_gang(self, engine: Engine) -> None:
        gang = _gang(self.waiting())
        await engine.ensure(gang)
        await _reached(engine, gang.key, GangState.RUNNING)
        with pytest.raises(Conflict):
            await engine.forget(gang.key.job_uid)
        await engine.stop(gang.key, grace_s=0.0)
        await _over(engine, gang.key)

    async def test_capacity_is_something(self, engine: Engine) -> None:
        capacity = await engine.capacity()
        assert capacity.cpu_millis >= 1000
        assert capacity.memory_bytes > 0


def _gang(
    command: tuple[str, ...],
    *,
    key: GangKey | None = None,
    environment: EnvironmentPlan | None = None,
    mounts: tuple[Mount, ...] = (),
) -> Gang:
    return Gang(
        key=key or _key(),
        tenant=1,
        processes=(ProcessPlan("master", 0, command),),
        environment=environment or EnvironmentPlan(),
        mounts=mounts,
    )


def _key() -> GangKey:
    """The first attempt of a job of its own."""
    return GangKey(f"{uuid.uuid4().hex[:12]}{next(_numbers)}", 1)


async def _over(engine: Engine, key: GangKey) -> ObservedGang:
    """The gang once it is over."""
    return await _when(engine, key, lambda gang: gang.state.over)


async def _reached(engine: Engine, key: GangKey, state: GangState) -> ObservedGang:
    return await _when(engine, key, lambda gang: gang.state is state or gang.state.over)


async def _when(
    engine: Engine, key: GangKey, holds: Callable[[ObservedGang], bool]
) -> ObservedGang:
    """Look until the gang is as wanted; bounded, and no faster than a person would notice."""

    async def look() -> ObservedGang:
        while True:
            for gang in await engine.observed(key.job_uid):
                if gang.attempt == key.attempt and holds(gang):
                    return gang
            await asyncio.sleep(0.01)

    return await asyncio.wait_for(look(), _LIMIT_S)


def _endpoints(engine: Engine) -> Endpoints:
    if not isinstance(engine, Endpoints):
        pytest.skip("jobs of this engine cannot be called")
    return engine


async def _said(endpoints: Endpoints, uid: str, name: str) -> bytes:
    """What a job sends to who connects, once it listens."""

    async def ask() -> bytes:
        while True:
            try:
                reader, writer = await endpoints.open_connection(uid, name)
            except Unavailable:
                await asyncio.sleep(0.01)
                continue
            with contextlib.closing(writer):
                return await reader.read()

    return await asyncio.wait_for(ask(), _LIMIT_S)


@dataclass(frozen=True)
class _Message:
    address: Address


def _sent(address: Address) -> Address:
    """The address as another process reads it."""
    text = json.dumps(codec.encode(_Message(address)))
    return codec.decode(_Message, json.loads(text), ignore_unknown=True).address


async def _until_named(changes: AsyncIterator[str], uid: str) -> None:
    async def look() -> None:
        async for named in changes:
            if named == uid:
                return

    await asyncio.wait_for(look(), _LIMIT_S)


async def _log(engine: Engine, key: GangKey) -> bytes:
    return await _collect(engine.logs(key, "master-0"))


async def _collect(chunks: AsyncIterator[bytes]) -> bytes:
    return b"".join([chunk async for chunk in chunks])
