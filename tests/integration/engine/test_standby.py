"""The supervisor that waits for its gang: used when it is there, not missed when it is not, and
never left over.

One whose gang has ended in the usual way waits for another, and brings nothing of the one before.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from cloud_ml.domain.observed import GangState
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.gang import EnvironmentPlan, Gang, ProcessPlan, TrainerSource
from cloud_ml.engines.local import cgroups
from cloud_ml.engines.local import engine as engines
from cloud_ml.engines.local.engine import LocalEngine
from cloud_ml.engines.local.ledger import process_start
from cloud_ml.engines.local.probe import Findings
from cloud_ml.engines.local.processes import proctree
from support.gangs import output, printed, run, shell, when
from support.machine import spawner_pid

pytestmark = pytest.mark.anyio


@pytest.fixture
def spawner(engine: LocalEngine, findings: Findings) -> int:
    pid = spawner_pid(Path(findings.config.root))
    assert pid is not None
    return pid


async def test_a_gang_gets_the_supervisor_that_waits(engine: LocalEngine, spawner: int) -> None:
    waiting = await _standby(engine)
    gang = shell("echo hello")
    seen, log = await run(engine, gang)
    assert (seen.succeeded, log) == (True, "hello\n")
    assert engine._ledger.gate(gang.key).pid == waiting


async def test_a_gang_of_several_tasks_gets_it_too(
    engine: LocalEngine, spawner: int, findings: Findings
) -> None:
    """With a control group for each task."""
    waiting = await _standby(engine)
    gang = _of_tasks(3, "echo I am here")
    await engine.ensure(gang)
    seen = await when(engine, gang.key, lambda g: g.state.over)
    gate = engine._ledger.gate(gang.key)
    assert gate is not None
    assert (seen.succeeded, gate.pid) == (True, waiting)
    assert len(set(gate.groups)) == (3 if findings.config.cgroups else 0)
    outputs = [await output(engine, gang.key, f"worker-{number}") for number in range(3)]
    assert outputs == ["I am here\n"] * 3


async def test_its_death_before_it_has_its_gang_is_told_at_once(
    engine: LocalEngine, spawner: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "_POLL_S", 3600.0)
    waiting, gang = await _standby(engine), shell("echo hello")
    changes = engine.changes()
    news = asyncio.ensure_future(anext(changes))
    await asyncio.sleep(0)  # it watches from its first step on
    os.kill(waiting, signal.SIGSTOP)
    await engine.ensure(gang)
    os.kill(waiting, signal.SIGKILL)
    async with asyncio.timeout(30):
        assert await news == gang.key.job_uid
    await cast("AsyncGenerator[str]", changes).aclose()
    await _until(
        lambda: not list(engine._ledger.reports.iterdir())
    )  # the news is heard before its file is gone
    seen, log = await run(engine, gang)
    assert (seen.succeeded, log) == (True, "hello\n")


async def test_a_gang_of_a_spawner_that_is_gone_is_left_to_the_next_one(
    engine: LocalEngine, spawner: int, findings: Findings
) -> None:
    """The next spawner has removed the control group, and the gang ended as ``StartFailed``."""
    hierarchy = cgroups.restore(dict(findings.config.cgroups))
    if hierarchy is None:
        pytest.skip("no control groups here")
    waiting, gang = await _standby(engine), shell("echo hello")
    before = set(hierarchy.names())
    os.kill(waiting, signal.SIGSTOP)
    await engine.ensure(gang)
    os.kill(spawner, signal.SIGKILL)
    seen, log = await run(engine, shell("echo other"))
    assert (seen.succeeded, log) == (True, "other\n")
    await _until(lambda: not before & set(hierarchy.names()))
    os.kill(waiting, signal.SIGCONT)
    await _until(lambda: process_start(waiting) is None)
    assert engine._ledger.gate(gang.key) is None
    seen, log = await run(engine, gang)
    assert (seen.succeeded, log) == (True, "hello\n")


async def test_it_serves_one_gang_after_another(engine: LocalEngine, spawner: int) -> None:
    waiting = await _standby(engine)
    for number in range(5):
        gang = shell(f"echo {number}; exit {number}")
        seen, log = await run(engine, gang)
        assert (seen.processes[0].exit_code, log) == (number, f"{number}\n")
        assert engine._ledger.gate(gang.key).pid == waiting
        assert await _standby(engine) == waiting


@pytest.mark.parametrize(
    "make",
    [
        lambda: shell("echo hello; sleep 60 &"),
        lambda: _of_tasks(3, "echo hello"),
        lambda: _of_tasks(3, "echo hello", prepare_command="exit 1"),
    ],
    ids=["one process", "tasks", "tasks that did not start"],
)
async def test_it_keeps_nothing_of_the_gangs_that_it_has_served(
    engine: LocalEngine, findings: Findings, spawner: int, make: Callable[[], Gang]
) -> None:
    waiting = await _standby(engine)
    await run(engine, shell("true"))
    await _standby(engine)
    root = findings.config.root
    before, served, warming = _belongings(waiting, root), 15, 5
    for _ in range(served):
        await run(engine, make())
        assert (
            await _standby(engine) == waiting
        )  # else others would serve too, and one too many would be let go
    # A warm interpreter that is there in one moment of its rest, and not yet in the other, is
    # `warming` descriptors. That is less than something kept of each gang.
    await _until(
        lambda: all(
            now - then < served - warming
            for now, then in zip(_belongings(waiting, root), before, strict=True)
        )
    )


async def test_the_temporary_folder_is_empty_for_each_gang(
    engine: LocalEngine, spawner: int
) -> None:
    """One that a gang left empty is used again; one with something in it is not."""
    look = 'ls -A "$TMPDIR"; ls -id "$TMPDIR" | cut -d" " -f1'
    listings = []
    for line in (look, f'{look}; touch "$TMPDIR/left"', look):
        await _standby(engine)  # what the gang before had is given back by then
        listings.append((await run(engine, shell(line)))[1].split())
    assert listings[0] == listings[1]
    assert [len(words) for words in listings] == [1, 1, 1]


async def test_another_one_waits_while_it_serves(engine: LocalEngine, spawner: int) -> None:
    first = await _standby(engine)
    gang = shell("sleep 600")
    await engine.ensure(gang)
    await _until(lambda: bool(set(proctree.children(spawner)) - {first}))
    await engine.stop(gang.key, 0)
    await when(engine, gang.key, lambda g: g.state.over)


async def test_one_that_could_not_start_its_gang_serves_no_other(
    engine: LocalEngine, spawner: int
) -> None:
    waiting = await _standby(engine)
    gang = shell(
        "true", environment=EnvironmentPlan(trainer=TrainerSource("", "t", "the trainer is gone"))
    )
    seen, _ = await run(engine, gang)
    assert seen.reason is Reason.TRAINER_NOT_FOUND
    await _until(lambda: process_start(waiting) is None)
    assert (await run(engine, shell("echo hello")))[1] == "hello\n"


async def test_a_stop_that_comes_late_harms_neither_it_nor_the_next_gang(
    engine: LocalEngine, spawner: int
) -> None:
    waiting = await _standby(engine)
    await run(engine, shell("true"))
    await _standby(engine)
    os.kill(waiting, signal.SIGTERM)
    gang = shell("sleep 0.1; echo whole")
    await engine.ensure(gang)
    os.kill(waiting, signal.SIGTERM)
    seen = await when(engine, gang.key, lambda g: g.state.over)
    assert (seen.succeeded, engine._ledger.gate(gang.key).pid) == (True, waiting)


async def test_one_that_is_killed_in_its_second_gang_loses_that_one(
    engine: LocalEngine, spawner: int
) -> None:
    waiting = await _standby(engine)
    first, second = shell("true"), shell("sleep 600")
    await run(engine, first)
    await _standby(engine)
    await engine.ensure(second)
    await when(engine, second.key, lambda g: g.state is GangState.RUNNING)
    os.kill(waiting, signal.SIGKILL)
    seen = await when(engine, second.key, lambda g: g.state.over)
    assert seen.reason is Reason.SUPERVISOR_LOST
    assert [gang.reason for gang in await engine.observed(first.key.job_uid)] == [Reason.COMPLETED]


async def test_it_goes_after_its_gang_when_the_spawner_was_killed(
    engine: LocalEngine, spawner: int
) -> None:
    waiting = await _standby(engine)
    gang = shell("echo started; sleep 0.2")
    await engine.ensure(gang)
    await printed(engine, gang.key, "started")
    os.kill(spawner, signal.SIGKILL)
    assert (await when(engine, gang.key, lambda g: g.state.over)).succeeded
    await _until(lambda: process_start(waiting) is None)


async def test_one_that_was_killed_is_not_missed(engine: LocalEngine, spawner: int) -> None:
    waiting = await _standby(engine)
    os.kill(waiting, signal.SIGKILL)
    await _until(lambda: waiting not in proctree.children(spawner))
    seen, log = await run(engine, shell("echo hello"))
    assert (seen.succeeded, log) == (True, "hello\n")


async def test_it_goes_with_a_spawner_that_is_killed(engine: LocalEngine, spawner: int) -> None:
    waiting = await _standby(engine)
    family = [waiting, *proctree.descendants(waiting)]
    os.kill(spawner, signal.SIGKILL)
    await _until(lambda: all(process_start(pid) is None for pid in family))


async def test_it_goes_with_an_engine_that_nobody_needs(
    engine: LocalEngine, spawner: int, findings: Findings
) -> None:
    waiting = await _standby(engine)
    family = [spawner, waiting, *proctree.descendants(waiting)]
    await engine.close()
    await _until(lambda: all(process_start(pid) is None for pid in family))
    folders = [Path(value) for name, value in findings.config.cgroups.items() if name != "version"]
    assert not [folder for folder in folders if folder.exists()]


def _of_tasks(count: int, script: str, **changes: Any) -> Gang:
    command = ("sh", "-c", script)
    tasks = tuple(ProcessPlan("worker", number, command) for number in range(count))
    names = tuple(task.name for task in tasks)
    return replace(shell(script, **changes), processes=tasks, completes=names)


async def _standby(engine: LocalEngine) -> int:
    """The process id of the supervisor that gets the next gang, when nothing runs."""
    async with asyncio.timeout(60):
        while True:
            known = await engine._spawner.ask({})
            if known["waiting"] and set(known["waiting"]) == set(proctree.children(known["pid"])):
                return int(known["waiting"][0])
            await asyncio.sleep(0.1)  # it makes one when nobody asks it anything


def _belongings(supervisor: int, root: str) -> tuple[int, int, int]:
    """How many descriptors, mounts and children it has. Mounts outside of the engine's folder are
    not its own: it sees those of engines that run at the same time.
    """
    mounts = Path(f"/proc/{supervisor}/mountinfo").read_text().count(f" {root}/")
    return (
        len([*Path(f"/proc/{supervisor}/fd").iterdir()]),
        mounts,
        len(proctree.children(supervisor)),
    )


async def _until(holds: Callable[[], bool], limit_s: float = 10.0) -> None:
    deadline = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
