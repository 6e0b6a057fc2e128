"""Accepts connections, and hands on those that a process of this user has made.

What a stranger's connections cost is bounded: so many wait, the others wait in the kernel, and all
that wait are looked up by one look at its tables. A look is followed by a pause of twice its time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from cloud_ml.optuna_proxy import peers
from cloud_ml.optuna_proxy.peers import Address, Peer

_MOST_WAITING, _LOOKS = 64, 3
_PAUSE_S, _PAUSE_FACTOR = 0.01, 2
# SO_LINGER with a time of 0: closing sends RST, and what the peer has sent is thrown away.
_RESET = struct.pack("ii", 1, 0)

Refused = Callable[[Peer | None], None]
"""Told the owner of a connection that was refused; ``None`` if it is unknown."""


class Admission(Protocol):
    """Tells which peers are served."""

    def __call__(self, found: Sequence[Peer | None]) -> Sequence[bool]:
        """For each peer whether it is. An unknown one never is."""


def admit_own_user(found: Sequence[Peer | None]) -> Sequence[bool]:
    """Serve all processes of this user."""
    user = os.geteuid()
    return [peer is not None and peer.user == user for peer in found]


def admit_own_sandbox(found: Sequence[Peer | None]) -> Sequence[bool]:
    """Serve the processes that this one sees, which in a sandbox are those of the sandbox alone.

    Their user is that of all jobs of an organisation, so it tells nothing.
    """
    own = admit_own_user(found)
    held = peers.open_sockets(
        {peer.inode for peer, same in zip(found, own, strict=True) if peer and same}
    )
    return [
        same and peer is not None and peer.inode in held
        for peer, same in zip(found, own, strict=True)
    ]


class Acceptor:
    """Accepts on some listening sockets.

    Args:
        listeners: The sockets; they must not block.
        admission: Tells which peers are served.
        serve: Takes over a connection that is.
        refused: See ``Refused``.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        admission: Admission,
        serve: Callable[[socket.socket], Awaitable[None]],
        refused: Refused,
    ) -> None:
        self._listeners = listeners
        self._admission = admission
        self._serve = serve
        self._refused = refused
        self._waiting: asyncio.Queue[socket.socket] = asyncio.Queue(_MOST_WAITING)

    async def run(self) -> None:
        """Accept until it is cancelled."""
        tasks = [asyncio.create_task(self._accept(each)) for each in self._listeners]
        try:
            await self._look_up()
        finally:
            for task in tasks:
                task.cancel()
            while not self._waiting.empty():
                _abort(self._waiting.get_nowait())

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                made, _ = await loop.sock_accept(listener)
            except OSError:  # no descriptor is free, or the peer has gone
                await asyncio.sleep(1)
                continue
            try:
                await self._waiting.put(made)
            except BaseException:
                made.close()
                raise

    async def _look_up(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            batch = [await self._waiting.get()]
            while not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            # The tables have a line for each connection of the machine, so a look takes longer the more
            # there are. The pause keeps the share of the processor the same.
            begun = loop.time()
            await self._admit(batch)
            await asyncio.sleep(max(_PAUSE_S, _PAUSE_FACTOR * (loop.time() - begun)))

    async def _admit(self, batch: Sequence[socket.socket]) -> None:
        found = await _find([_ends(each) for each in batch])
        for stream, peer, is_served in zip(batch, found, self._admission(found), strict=True):
            if is_served:
                await self._serve(stream)
            else:
                _abort(stream)
                self._refused(peer)


async def _find(ends: Sequence[tuple[Address, Address] | None]) -> list[Peer | None]:
    """The peers at these ends. A table that changes while it is read may miss one: look again."""
    found: list[Peer | None] = [None] * len(ends)
    for attempt in range(_LOOKS):
        missing = [
            (number, end)
            for number, end in enumerate(ends)
            if end is not None and found[number] is None
        ]
        if not missing:
            break
        if attempt:
            await asyncio.sleep(_PAUSE_S)
        for (number, _), peer in zip(
            missing, peers.peers_of([end for _, end in missing]), strict=True
        ):
            found[number] = peer
    return found


def _ends(stream: socket.socket) -> tuple[Address, Address] | None:
    with contextlib.suppress(OSError):
        return stream.getpeername()[:2], stream.getsockname()[:2]
    return None


def _abort(stream: socket.socket) -> None:
    """Close it at once, with what has come unread."""
    with contextlib.suppress(OSError):
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    stream.close()
