"""The supervisor that waits for its gang: used when it is there, not missed when it is not, and never left over."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cloud_ml.engines.local import proctree
from cloud_ml.engines.local.engine import LocalEngine
from cloud_ml.engines.local.ledger import process_start
from cloud_ml.engines.local.probe import Findings
from support.gangs import run, shell
from support.machine import spawner_pid

pytestmark = pytest.mark.anyio


@pytest.fixture
def spawner(engine: LocalEngine, findings: Findings) -> int:
    pid = spawner_pid(Path(findings.config.root))
    assert pid is not None
    return pid


async def test_a_gang_gets_the_supervisor_that_waits(engine: LocalEngine, spawner: int) -> None:
    waiting = await _standby(spawner)
    gang = shell("echo hello")
    seen, log = await run(engine, gang)
    assert (seen.succeeded, log) == (True, "hello\n")
    assert engine._ledger.gate(gang.key).pid == waiting


async def test_another_one_waits_when_it_is_quiet_again(engine: LocalEngine, spawner: int) -> None:
    first = await _standby(spawner)
    await run(engine, shell("true"))
    await _until(lambda: bool(set(proctree.children(spawner)) - {first}))


async def test_one_that_was_killed_is_not_missed(engine: LocalEngine, spawner: int) -> None:
    waiting = await _standby(spawner)
    os.kill(waiting, signal.SIGKILL)
    await _until(lambda: waiting not in proctree.children(spawner))
    seen, log = await run(engine, shell("echo hello"))
    assert (seen.succeeded, log) == (True, "hello\n")


async def test_it_goes_with_a_spawner_that_is_killed(engine: LocalEngine, spawner: int) -> None:
    waiting = await _standby(spawner)
    family = [waiting, *proctree.descendants(waiting)]
    os.kill(spawner, signal.SIGKILL)
    await _until(lambda: all(process_start(pid) is None for pid in family))


async def test_it_goes_with_an_engine_that_nobody_needs(engine: LocalEngine, spawner: int, findings: Findings) -> None:
    waiting = await _standby(spawner)
    family = [spawner, waiting, *proctree.descendants(waiting)]
    await engine.close()
    await _until(lambda: all(process_start(pid) is None for pid in family))
    folders = [Path(value) for name, value in findings.config.cgroups.items() if name != "version"]
    assert not [folder for folder in folders if folder.exists()]


async def _standby(spawner: int) -> int:
    """The process id of the supervisor that waits, when nothing runs."""
    await _until(lambda: len(proctree.children(spawner)) == 1)
    return proctree.children(spawner)[0]


async def _until(holds: Callable[[], bool], limit_s: float = 10.0) -> None:
    deadline = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
