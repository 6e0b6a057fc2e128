"""Whose connections are served, and what a stranger's cost."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Sequence

import pytest

from cloud_ml.optuna_proxy.acceptor import Acceptor, admit_own_sandbox, admit_own_user
from cloud_ml.optuna_proxy.peers import Peer
from cloud_ml.optuna_proxy.program import listen

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]
MANY, AT_ONCE = 300, 60


async def test_many_strangers_cost_few_looks_and_keep_nobody_out() -> None:
    looks, refused, served = [0], [0], asyncio.Event()
    listeners = listen(0)
    port = listeners[0].getsockname()[1]

    def admission(found: Sequence[Peer | None]) -> Sequence[bool]:
        looks[0] += 1
        assert all(peer is not None and peer.user == os.geteuid() for peer in found)
        refused[0] += len(found)
        return [refused[0] > MANY for _ in found]

    async def serve(stream: socket.socket) -> None:
        stream.close()
        served.set()

    async def stranger() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"PRI")  # else a peer that the kernel could not queue would wait for ever
        try:
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        finally:
            writer.close()

    acceptor = Acceptor(listeners, admission, serve, lambda _: None)
    running = asyncio.create_task(acceptor.run())
    try:
        for _ in range(MANY // AT_ONCE):
            await asyncio.gather(*(stranger() for _ in range(AT_ONCE)))
        assert looks[0] < MANY // 3
        await stranger()
        await asyncio.wait_for(served.wait(), 10)
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        for each in listeners:
            each.close()


async def test_sockets_that_no_process_here_has_are_not_of_this_sandbox() -> None:
    mine, other = socket.socketpair()
    with mine, other:
        user, inode = os.geteuid(), os.fstat(mine.fileno()).st_ino
        found = [Peer(user, inode), Peer(user + 1, inode), Peer(user, 1), None]
        assert list(admit_own_sandbox(found)) == [True, False, False, False]
        assert list(admit_own_user(found)) == [True, False, True, False]


HOLD = """
import os, socket, sys
one = socket.socket()
print(os.fstat(one.fileno()).st_ino, flush=True)
sys.stdin.read()
"""


async def test_a_socket_of_a_child_is_of_this_sandbox() -> None:
    with subprocess.Popen(
        [sys.executable, "-I", "-c", HOLD],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        inode = int(child.stdout.readline())
        assert list(admit_own_sandbox([Peer(os.geteuid(), inode)])) == [True]
        child.communicate()
    assert list(admit_own_sandbox([Peer(os.geteuid(), inode)])) == [False]
