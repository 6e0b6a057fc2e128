"""Jobs without a network call the server: by a socket of their own, which no other job reaches, and
which outlives servers.
"""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from cloud_ml.domain.workloads.gangs import TaskRestarts
from cloud_ml.engines.gang import ArrayTasks, Gang, GangKey, ProcessPlan
from cloud_ml.engines.local.engine import LocalEngine
from cloud_ml.settings import EngineSettings
from cloud_ml.testing.engine.looking import log_of
from support.attacks import PYTHON, attack
from support.gangs import gang_of, printed, run, when
from support.job_callers import served
from support.machine import spawner_pid

pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("job-listeners")]

LIMIT_S = 60.0
CALL = """
import os, socket
def call(word):
    with socket.create_connection(("127.0.0.1", 8471), 60) as connection:
        connection.sendall(word.encode() + b"\\n")
        return connection.makefile().readline().strip()
print("answer:", call(os.environ.get("WORD", "hello")), flush=True)
"""
UNTIL_GO = "import os, time\nwhile not os.path.exists('/work/go'): time.sleep(0.01)\n"
WAIT = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"


@pytest.fixture
def engine_settings() -> EngineSettings:
    return EngineSettings(network="none")


@pytest.fixture(autouse=True)
def _has_a_way(engine: LocalEngine) -> None:
    if not engine.server_address():
        pytest.skip("no sandbox, or no C compiler: " + "; ".join(engine.missing()))


def python(code: str, **changes: object) -> Gang:
    return gang_of(PYTHON, "-c", code, network="none", **changes)


async def test_a_job_calls_at_once_and_the_server_knows_which_it_is(engine: LocalEngine) -> None:
    async with served(engine) as serving:
        gang, other = python(CALL, tenant=1), python(CALL, tenant=2)
        for one in (gang, other):
            seen, log = await run(engine, one)
            assert seen.succeeded, log
            assert f"answer: {one.tenant} {one.key.job_uid} hello" in log
        await serving.until(0)
        assert all(one.sandboxed for one in serving.ever)
    assert list(engine._ledger.listeners.iterdir()) == []


async def test_a_call_waits_for_a_server_and_the_next_one_has_the_socket(
    engine: LocalEngine,
) -> None:
    gang = python(f"{CALL}\n{UNTIL_GO}print('second:', call('again'), flush=True)")
    await engine.ensure(gang)
    for _ in range(2):
        async with served(engine) as serving:
            await serving.until(1)
            await printed(engine, gang.key, "answer: 1")
    folder = engine._ledger.work_folder(gang.key.job_uid)
    (folder / "go").touch()
    table = f"/proc/{await main_process(engine, gang.key)}/net/tcp"
    async with asyncio.timeout(LIMIT_S):
        while not waits(table):
            await asyncio.sleep(0.01)
    async with served(engine):
        await printed(engine, gang.key, f"second: 1 {gang.key.job_uid} again")


def waits(table: str) -> bool:
    """Whether a connection to the port is open that nobody has accepted: no process has it."""
    with Path(table).open() as lines:
        rows = [line.split() for line in lines][1:]
    return any(row[1].endswith(":2117") and row[3] == "01" and row[9] == "0" for row in rows)


async def main_process(engine: LocalEngine, key: GangKey) -> int:
    gate = engine._ledger.gate(key)
    assert gate is not None
    below = [gate.pid]
    for pid in below:
        below += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return below[-1]


async def test_a_job_cannot_take_the_port_and_has_no_descriptor_of_it(engine: LocalEngine) -> None:
    outcomes = await attack(
        engine,
        """
import socket
def bind(address, family=socket.AF_INET):
    with socket.socket(family) as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind((address, 8471))
        taken.listen()
def descriptors(pid):
    return os.listdir(f"/proc/{pid}/fd")
sockets = [fd for fd in os.listdir("/proc/self/fd")
           if os.path.exists(f"/proc/self/fd/{fd}") and "socket" in os.readlink(f"/proc/self/fd/{fd}")]
tell([outcome(bind, "127.0.0.1"), outcome(bind, "0.0.0.0"), sockets, outcome(descriptors, 1),
      outcome(os.stat, "/proc/1/root/etc")])
""",
        network="none",
    )
    assert outcomes == ["EADDRINUSE", "EADDRINUSE", [], "EACCES", "EACCES"]


class TestInMachineNetwork:
    @pytest.fixture
    def engine_settings(self) -> EngineSettings:
        return EngineSettings(network="host")

    async def test_who_asks_again_has_the_socket_anew(self, engine: LocalEngine) -> None:
        host, _, port = engine.server_address().rpartition(":")
        for _ in range(2):
            async with served(engine) as serving:
                await serving.until(1)
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(b"hello\n")
                assert b"hello" in await reader.readline()
                writer.close()


async def test_a_flood_of_connections_ends_with_its_job(engine: LocalEngine) -> None:
    flood = """
import socket, time
held = []
for _ in range(500):
    one = socket.socket()
    one.setblocking(False)
    one.connect_ex(("127.0.0.1", 8471))
    held.append(one)
print("up", flush=True)
time.sleep(600)
"""
    gang = python(flood)
    await engine.ensure(gang)
    await printed(engine, gang.key, "up")
    async with served(engine) as serving:
        quiet = python(CALL)
        seen, log = await run(engine, quiet)
        assert seen.succeeded, log
        await engine.stop(gang.key, 0)
        await when(engine, gang.key, lambda gang: gang.state.over)
        await serving.until(0)


async def test_the_socket_goes_with_a_killed_supervisor(engine: LocalEngine) -> None:
    gang = python(WAIT)
    await engine.ensure(gang)
    async with served(engine) as serving:
        await serving.until(1)
        kill_supervisor(engine, gang.key)
        await serving.until(0)
    # Whoever looks next removes what it could not remove.
    async with served(engine) as serving, asyncio.timeout(LIMIT_S):
        while list(engine._ledger.listeners.iterdir()):
            await asyncio.sleep(0.01)
        assert serving.ever == []


def kill_supervisor(engine: LocalEngine, key: GangKey) -> None:
    gate = engine._ledger.gate(key)
    assert gate is not None
    os.kill(gate.pid, signal.SIGKILL)


async def test_the_spawner_has_no_part_in_it(engine: LocalEngine) -> None:
    gang = python(f"print('up', flush=True)\n{UNTIL_GO}{CALL}")
    await engine.ensure(gang)
    await printed(engine, gang.key, "up")
    spawner = spawner_pid(engine._root)
    assert spawner is not None
    os.kill(spawner, signal.SIGKILL)
    (engine._ledger.work_folder(gang.key.job_uid) / "go").touch()
    async with served(engine):
        await printed(engine, gang.key, f"answer: 1 {gang.key.job_uid} hello")


async def test_each_task_of_an_array_has_its_own_and_none_stays(engine: LocalEngine) -> None:
    every = ProcessPlan("task", 0, (PYTHON, "-c", CALL))
    tasks = ArrayTasks(tuple(range(4)), ("WORD",))
    gang = replace(python(CALL), processes=(every,), array=tasks, parallel=2)
    gang = replace(gang, completes=tuple(f"task-{index}" for index in range(4)))
    async with served(engine) as serving:
        await engine.ensure(gang)
        seen = await when(engine, gang.key, lambda gang: gang.state.over)
        assert seen.succeeded, seen.message
        for index in range(4):
            log = (await log_of(engine, gang.key, f"task-{index}")).decode()
            assert f"answer: 1 {gang.key.job_uid} {index}" in log
        assert len(serving.ever) == 4
        await serving.until(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="a network for each gang takes root")
async def test_tasks_of_a_gang_share_one_also_when_the_first_has_ended_or_starts_again(
    engine: LocalEngine,
) -> None:
    again = f"{CALL}\nimport sys\nsys.exit(os.environ['CLOUDML_TASK_RESTART'] == '0')"
    gang = Gang(
        key=gang_of("x").key,
        tenant=1,
        network="none",
        processes=(
            ProcessPlan(
                "chief", 0, (PYTHON, "-c", again), environment={"CLOUDML_TASK_RESTART": "0"}
            ),
            ProcessPlan("worker", 0, (PYTHON, "-c", f"{UNTIL_GO}{CALL}")),
        ),
        completes=("worker-0",),
        restarts=TaskRestarts(("chief-0",), most=1),
    )
    async with served(engine) as serving:
        await engine.ensure(gang)
        await when(
            engine,
            gang.key,
            lambda gang: [one.exit_code for one in gang.processes][:1] == [0],
        )
        lines = (await log_of(engine, gang.key, "chief-0")).splitlines()
        assert sum(line.startswith(b"answer: 1") for line in lines) == 2
        (engine._ledger.work_folder(gang.key.job_uid) / "go").touch()
        seen = await when(engine, gang.key, lambda gang: gang.state.over)
        assert seen.succeeded, seen.message
        assert b"answer: 1" in await log_of(engine, gang.key, "worker-0")
        assert len(serving.ever) == 1
        await serving.until(0)
