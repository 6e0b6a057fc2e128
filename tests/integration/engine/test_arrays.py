"""Many tasks on this machine: a few at a time, each in limits of its own."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from typing import Any

import psutil
import pytest

from cloud_ml.domain.observed import GangState
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.abilities import ALL_TASKS
from cloud_ml.engines.gang import ArrayTasks, Gang, ProcessPlan
from cloud_ml.engines.local.engine import LocalEngine
from support.gangs import shell, when

pytestmark = pytest.mark.anyio

MIB = 2**20


@pytest.fixture
def engine(shared_engine: LocalEngine) -> LocalEngine:
    """That of all tests here, which look at gangs of their own."""
    return shared_engine


def array(script: str, count: int, parallel: int, **fields: Any) -> Gang:
    """Tasks that run a shell script, which finds its index in ``$INDEX``."""
    every = ProcessPlan("task", 0, ("sh", "-c", script), memory_bytes=64 * MIB)
    tasks = ArrayTasks(tuple(range(count)), ("INDEX",))
    names = tuple(f"task-{index}" for index in range(count))
    gang = replace(shell(script), processes=(every,), array=tasks, parallel=parallel)
    return replace(gang, completes=names, **fields)


async def logged(engine: LocalEngine, gang: Gang, process: str = ALL_TASKS) -> str:
    return b"".join([chunk async for chunk in engine.logs(gang.key, process)]).decode()


async def test_tasks_follow_each_other_in_as_many_control_groups_as_live_at_a_time(
    engine: LocalEngine,
) -> None:
    gang = array("echo $INDEX", 9, 3)
    await engine.ensure(gang)
    over = await when(engine, gang.key, lambda seen: seen.state.over)
    assert over.succeeded, over.message
    gate = engine._ledger.gate(gang.key)
    assert gate is not None
    assert len(gate.groups) in (0, 3)


async def test_nothing_of_a_task_lives_when_the_next_one_starts(engine: LocalEngine) -> None:
    """A daemon of the first task touches a file again and again until it is killed."""
    script = """
        if [ $INDEX = 0 ]; then
            setsid sh -c 'while :; do date +%s%N > beat; done' > /dev/null 2>&1 &
            while [ ! -s beat ]; do sleep 0.01; done
        else
            first=$(cat beat); sleep 0.2; [ "$first" = "$(cat beat)" ] && echo quiet
        fi
    """
    gang = array(script, 2, 1)
    await engine.ensure(gang)
    over = await when(engine, gang.key, lambda seen: seen.state.over)
    if not engine._config.bwrap and not engine._config.cgroups:
        pytest.skip("without fences nobody knows whose daemon it is")
    assert over.succeeded, over.message
    assert await logged(engine, gang, "task-1") == "quiet\n"


async def test_what_has_completed_is_known_when_the_supervisor_is_killed(
    engine: LocalEngine,
) -> None:
    gang = array("[ $INDEX = 0 ] || sleep 600", 3, 1)
    await engine.ensure(gang)
    await when(engine, gang.key, lambda seen: any(one.reason for one in seen.processes))
    gate = engine._ledger.gate(gang.key)
    assert gate is not None
    os.kill(gate.pid, signal.SIGKILL)
    over = await when(engine, gang.key, lambda seen: seen.state.over)
    assert over.state is GangState.LOST
    assert [one.reason for one in over.processes] == [
        Reason.COMPLETED,
        Reason.SUPERVISOR_LOST,
        Reason.SUPERVISOR_LOST,
    ]


async def test_a_task_that_lacks_memory_fails_alone(engine: LocalEngine) -> None:
    """The group of the one that was killed for it serves the next, with its limit."""
    if not engine._config.cgroups:
        pytest.skip("no control groups here")
    script = """
        [ $INDEX = 0 ] || exit 0
        head -c 200000000 /dev/zero | tail -c 150000000 > /dev/null || exit 9
    """
    gang = array(script, 3, 1, max_failed=1)
    await engine.ensure(gang)
    over = await when(engine, gang.key, lambda seen: seen.state.over)
    assert over.succeeded, over.message
    first, *others = over.processes
    assert first.reason is Reason.OUT_OF_MEMORY
    assert [one.reason for one in others] == [Reason.COMPLETED] * 2
    assert all(one.usage.memory_peak_bytes < 64 * MIB for one in others)


async def test_a_task_that_hangs_is_ended_while_others_work(engine: LocalEngine) -> None:
    script = """
        [ $INDEX = 0 ] && exec sleep 600
        for i in $(seq 30); do echo $i; sleep 0.1; done
    """
    gang = array(script, 2, 2, max_failed=1, hang_s=1.0)
    await engine.ensure(gang)
    over = await when(engine, gang.key, lambda seen: seen.state.over)
    assert over.succeeded, over.message
    assert [one.reason for one in over.processes] == [Reason.HUNG, Reason.COMPLETED]
    assert "1 of 2 tasks failed: task-0" in over.message


async def test_a_finish_command_runs_once_when_all_have_ended(engine: LocalEngine) -> None:
    gang = array("echo $INDEX", 4, 2, prepare_command="echo before", finish_command="echo after")
    await engine.ensure(gang)
    over = await when(engine, gang.key, lambda seen: seen.state.over)
    assert over.succeeded, over.message
    assert await logged(engine, gang, "task-0") == "before\n0\nafter\n"
    assert [one.name for one in over.processes] == [f"task-{index}" for index in range(4)]


async def test_searches_in_the_output_of_many_tasks_do_not_hold_up_a_request_to_stop(
    engine: LocalEngine,
) -> None:
    """A supervisor that looked for the slow patterns of a user in the output of each task that had
    failed heard nothing else meanwhile.
    """
    slow = tuple(f"(?:(?:(?:[ab]?){{10}}){{10}}){{9}}{end}" for end in "xyz")
    script = """
        while [ ! -e go ]; do sleep 0.01; done
        tr -dc ab < /dev/urandom | head -c 60000
        exit 1
    """
    gang = array(script, 8, 8, log_patterns=slow, max_failed=8)
    await engine.ensure(gang)
    await when(engine, gang.key, lambda seen: seen.state is GangState.RUNNING)
    gate = engine._ledger.gate(gang.key)
    assert gate is not None
    os.kill(gate.pid, signal.SIGSTOP)  # so that it sees all ends at once
    (engine._ledger.work_folder(gang.key.job_uid) / "go").touch()
    supervisor = psutil.Process(gate.pid)
    async with asyncio.timeout(60):
        while any(one.status() != psutil.STATUS_ZOMBIE for one in supervisor.children()):
            await asyncio.sleep(0.01)
        os.kill(gate.pid, signal.SIGCONT)
        folder = engine._ledger.attempt_folder(gang.key)
        while not list(folder.glob("search-*")):
            await asyncio.sleep(0.01)
    await engine.stop(gang.key, 0)
    over = await when(engine, gang.key, lambda seen: seen.state.over)
    looked = [one for one in over.processes if "patterns" in one.message]
    assert 1 <= len(looked) <= 2
    assert {one.reason for one in over.processes if one not in looked} == {Reason.CANCELLED}
