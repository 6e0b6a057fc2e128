"""Ports of tasks from which the system still keeps connections of a process that has ended."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Iterator

import pytest

from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.gang import Gang
from cloud_ml.engines.local.engine import LocalEngine
from cloud_ml.testing.engine.looking import free_port
from support.gangs import output, printed, shell, when
from support.left_connections import left_connection

pytestmark = pytest.mark.anyio


@pytest.fixture
def engine(shared_engine: LocalEngine) -> LocalEngine:
    return shared_engine


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def connection(port: int) -> Iterator[socket.socket]:
    with left_connection(port) as connection:
        yield connection


def listening(port: int) -> Gang:
    """A task that listens without SO_REUSEADDR, as LightGBM does."""
    program = "import socket; one = socket.socket(); one.bind(('', {})); one.listen(); print('up')"
    gang = shell(f'python3 -c "{program.format(port)}"')
    return dataclasses.replace(
        gang, processes=(dataclasses.replace(gang.processes[0], ports=(port,)),)
    )


async def test_a_task_waits_until_the_system_drops_old_connections(
    engine: LocalEngine, port: int, connection: socket.socket
) -> None:
    gang = listening(port)
    await engine.ensure(gang)
    await printed(engine, gang.key, "still has connections of a process that has ended; waiting")
    connection.close()
    over = await when(engine, gang.key, lambda seen: seen.state.over)
    assert over.succeeded, over.message
    log = await output(engine, gang.key)
    assert log.splitlines() == [
        f"cloudml: port {port} of master-0 still has connections of a process that has ended; "
        "waiting for a minute at most",
        "up",
    ]


async def test_who_waits_for_old_connections_can_be_stopped(
    engine: LocalEngine, port: int, connection: socket.socket
) -> None:
    gang = listening(port)
    await engine.ensure(gang)
    await printed(engine, gang.key, "waiting for a minute at most")
    await engine.stop(gang.key, 60.0)
    over = await when(engine, gang.key, lambda seen: seen.state.over)
    assert (over.reason, over.processes) == (Reason.CANCELLED, ())


async def test_who_waits_for_old_connections_is_told_when_somebody_takes_another_port(
    engine: LocalEngine, port: int, connection: socket.socket
) -> None:
    gang, other = listening(port), free_port()
    plan = dataclasses.replace(gang.processes[0], ports=(port, other))
    await engine.ensure(dataclasses.replace(gang, processes=(plan,)))
    await printed(engine, gang.key, "waiting for a minute at most")
    with socket.create_server(("127.0.0.1", other)):
        over = await when(engine, gang.key, lambda seen: seen.state.over)
    assert over.reason is Reason.PORT_TAKEN
    assert over.message == f"PortTaken: port {other} of master-0 is in use by another process"
