"""Building gangs and waiting for them, for tests of real engines."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

from cloud_ml.domain.observed import ObservedGang
from cloud_ml.engines.base import Engine
from cloud_ml.engines.gang import Gang, GangKey, ProcessPlan

LIMIT_S = 60.0


def gang_of(*command: str, attempt: int = 1, uid: str | None = None, **changes: Any) -> Gang:
    """A gang of one process; ``cpu_millis``, ``memory_bytes`` and ``environment`` go to the
    process.
    """
    process = {
        name: changes.pop(name)
        for name in ("cpu_millis", "memory_bytes", "variables")
        if name in changes
    }
    if "variables" in process:
        process["environment"] = process.pop("variables")
    key = GangKey(uid or uuid.uuid4().hex, attempt)
    return Gang(
        key=key,
        tenant=changes.pop("tenant", 1),
        processes=(ProcessPlan("master", 0, command, **process),),
        **changes,
    )


def shell(script: str, **changes: Any) -> Gang:
    """A gang that runs a shell script."""
    return gang_of("sh", "-c", script, **changes)


async def when(engine: Engine, key: GangKey, holds: Callable[[ObservedGang], bool]) -> ObservedGang:
    """The gang once it is as wanted; fails after a minute."""

    async def look() -> ObservedGang:
        while True:
            for gang in await engine.observed(key.job_uid):
                if gang.attempt == key.attempt and holds(gang):
                    return gang
            await asyncio.sleep(0.01)

    return await asyncio.wait_for(look(), LIMIT_S)


async def run(engine: Engine, gang: Gang) -> tuple[ObservedGang, str]:
    """Run a gang to its end; returns what is observed and its output."""
    await engine.ensure(gang)
    seen = await when(engine, gang.key, lambda g: g.state.over)
    return seen, await output(engine, gang.key)


async def output(engine: Engine, key: GangKey, process: str = "master-0") -> str:
    """What a process has printed, by default the first one."""
    return b"".join([chunk async for chunk in engine.logs(key, process)]).decode(errors="replace")


async def printed(engine: Engine, key: GangKey, text: str) -> None:
    """Wait until the first process has printed ``text``; fails after a minute."""
    async with asyncio.timeout(LIMIT_S):
        while text not in await output(engine, key):
            await asyncio.sleep(0.01)
