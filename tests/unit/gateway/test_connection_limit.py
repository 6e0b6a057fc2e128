"""Callers of one service, who need no token to connect, do not take all connections of a
gateway.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path

import pytest

from cloud_ml.gateway.connection_limit import ConnectionLimit
from cloud_ml.net.listening import Alive
from support.gateway_front import gateway_before

REQUEST = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
TIMEOUT_S = 60


class Fake:
    """A connection that is idle or not."""

    def __init__(self, name: str, *, idle: bool) -> None:
        self.name, self.idle, self.closed = name, idle, False

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def data_received(self, data: bytes) -> None: ...
    def leave(self) -> None: ...

    def give_way(self) -> bool:
        self.closed = self.idle
        if self.closed:
            self.connection_lost(None)
        return self.idle


def alive(*connections: Fake) -> Alive:
    made = Alive()
    for connection in connections:
        made.add(connection)
    return made


def test_the_service_with_the_most_connections_closes_an_idle_one() -> None:
    mine = [Fake("mine", idle=True)]
    theirs = [Fake("busy", idle=False), Fake("older", idle=True), Fake("newer", idle=True)]
    services = [alive(*mine), alive(*theirs)]
    assert ConnectionLimit(5, lambda: services).make_room()
    assert not any(each.closed for each in [*mine, *theirs])
    assert ConnectionLimit(4, lambda: services).make_room()
    assert [each.name for each in [*mine, *theirs] if each.closed] == ["older"]


def test_where_all_are_busy_a_new_one_is_closed_and_an_idle_one_behind_many_is_found_soon() -> None:
    connections = [Fake(str(number), idle=False) for number in range(100)]
    services = [alive(*connections)]
    room = ConnectionLimit(100, lambda: services)
    assert not room.make_room()
    connections[90].idle = True
    assert [room.make_room() for _ in range(3)] == [False, True, True]
    assert connections[90].closed


@pytest.mark.parametrize("with_request", [False, True])
def test_idle_connections_give_way_to_callers(tmp_path: Path, with_request: bool) -> None:
    """A gateway ran out of open files, and no service could be reached."""
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(gateway_before(tmp_path, connections=3, waiting_s=0.1))

        def connect(first: bytes) -> socket.socket:
            made = stack.enter_context(
                socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
            )
            made.sendall(first)
            return made

        idle = [connect(REQUEST if with_request else b"") for _ in range(3)]
        for each in idle if with_request else []:
            assert each.recv(4096).startswith(b"HTTP/1.1 ")
        for each in idle[:2]:
            assert connect(REQUEST).recv(4096).startswith(b"HTTP/1.1 ")
            with contextlib.suppress(ConnectionResetError):
                assert each.recv(4096) == b""
