"""Gangs to run, and ways to look at what becomes of them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import socket
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace

import pytest

from cloud_ml.domain.addresses import Address
from cloud_ml.domain.observed import GangState, ObservedGang
from cloud_ml.engines.abilities import Endpoints
from cloud_ml.engines.base import Engine
from cloud_ml.engines.gang import (
    EnvironmentPlan,
    Gang,
    GangKey,
    Mount,
    ProcessPlan,
)
from cloud_ml.errors import Unavailable
from cloud_ml.models import codec

_numbers = itertools.count(1)
LIMIT_S = 30.0
_ports = itertools.count(random.randrange(30_000, 32_000))
"""Outside of ``engine.ports``, and below those that the kernel gives to connections."""


def gang_of(
    command: tuple[str, ...],
    *,
    key: GangKey | None = None,
    environment: EnvironmentPlan | None = None,
    mounts: tuple[Mount, ...] = (),
) -> Gang:
    return Gang(
        key=key or new_key(),
        tenant=1,
        processes=(ProcessPlan("master", 0, command),),
        environment=environment or EnvironmentPlan(),
        mounts=mounts,
    )


def several(*commands: tuple[str, ...]) -> Gang:
    """A gang of equal workers that run these commands."""
    plans = [ProcessPlan("worker", index, command) for index, command in enumerate(commands)]
    return replace(gang_of(commands[0]), processes=tuple(plans))


def most_at_once(gang: ObservedGang) -> int:
    """How many processes lived at a time."""
    times = [(one.started_at, 1) for one in gang.processes]
    times += [(one.finished_at, -1) for one in gang.processes]
    live, most = 0, 0
    for _, change in sorted((at, change) for at, change in times if at is not None):
        live += change
        most = max(most, live)
    return most


def new_key() -> GangKey:
    """The first attempt of a job of its own."""
    return GangKey(f"{uuid.uuid4().hex[:12]}{next(_numbers)}", 1)


async def wait_for_words(engine: Engine, key: GangKey, process: str, words: bytes) -> None:
    """Wait until ``words`` are in the log of a process."""

    async def look() -> None:
        while True:
            if words in await log_of(engine, key, process):
                return
            await asyncio.sleep(0.01)

    await asyncio.wait_for(look(), LIMIT_S)


async def until_over(engine: Engine, key: GangKey) -> ObservedGang:
    """The gang once it is over."""
    return await until(engine, key, lambda gang: gang.state.over)


async def until_reached(engine: Engine, key: GangKey, state: GangState) -> ObservedGang:
    return await until(engine, key, lambda gang: gang.state is state or gang.state.over)


async def until(
    engine: Engine, key: GangKey, holds: Callable[[ObservedGang], bool]
) -> ObservedGang:
    """Look until the gang is as wanted; bounded, and no faster than a person would notice."""

    async def look() -> ObservedGang:
        while True:
            for gang in await engine.observed(key.job_uid):
                if gang.attempt == key.attempt and holds(gang):
                    return gang
            await asyncio.sleep(0.01)

    return await asyncio.wait_for(look(), LIMIT_S)


def free_port() -> int:
    """A port on which nobody of this machine listens."""
    for port in _ports:
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            return port
    raise AssertionError


async def until_restarted(engine: Engine, key: GangKey, name: str, times: int) -> None:
    """Wait until a process runs that has started again so often."""

    def runs(gang: ObservedGang) -> bool:
        found = next(one for one in gang.processes if one.name == name)
        return gang.state.over or (found.running and found.restarts == times)

    assert not (await until(engine, key, runs)).state.over


def endpoints_of(engine: Engine) -> Endpoints:
    if not isinstance(engine, Endpoints):
        pytest.skip("jobs of this engine cannot be called")
    return engine


async def read_answer(endpoints: Endpoints, uid: str, name: str) -> bytes:
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

    return await asyncio.wait_for(ask(), LIMIT_S)


@dataclass(frozen=True)
class _Message:
    address: Address


def send_address(address: Address) -> Address:
    """The address as another process reads it."""
    text = json.dumps(codec.encode(_Message(address)))
    return codec.decode(_Message, json.loads(text), ignore_unknown=True).address


async def until_named(changes: AsyncIterator[str], uid: str) -> None:
    async def look() -> None:
        async for named in changes:
            if named == uid:
                return

    await asyncio.wait_for(look(), LIMIT_S)


async def log_of(engine: Engine, key: GangKey, process: str = "master-0") -> bytes:
    return await collect(engine.logs(key, process))


async def wait_for_output(engine: Engine, key: GangKey, process: str) -> None:
    """Wait until the process has written something."""

    async def look() -> None:
        while True:
            if await log_of(engine, key, process):
                return
            await asyncio.sleep(0.01)

    await asyncio.wait_for(look(), LIMIT_S)


async def collect(chunks: AsyncIterator[bytes]) -> bytes:
    return b"".join([chunk async for chunk in chunks])
