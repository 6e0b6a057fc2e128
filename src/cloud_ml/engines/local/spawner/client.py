"""The server's connection to the spawner, which it starts where there is none."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

from cloud_ml.daemons import DaemonConnection, Resident
from cloud_ml.engines.local.config import LocalConfig
from cloud_ml.engines.local.spawner.requests import SOCKET_NAME, TOKEN_NAME
from cloud_ml.errors import Unavailable
from cloud_ml.models import codec

_ANSWER_LIMIT_S = 30.0
_LIMIT = 1 << 20


class SpawnerClient:
    """Asks the spawner of this machine, one request after the other.

    Args:
        root: The folder of the engine, with the spawner's socket.
        config: What it is to have; one with another configuration is replaced.
    """

    def __init__(self, root: Path, config: LocalConfig) -> None:
        self._root = root
        self._config = config
        self._resident = Resident(
            "spawner",
            "cloud_ml.engines.local.spawner.main",
            root,
            SOCKET_NAME,
            "spawner.log",
            "the spawner cannot start the attempt",
            _LIMIT,
            _ANSWER_LIMIT_S,
        )
        self._line: DaemonConnection | None = None
        self._token = ""
        self._lock = asyncio.Lock()

    async def connect(self) -> None:
        """Find the spawner of a predecessor, or start one.

        Raises:
            Unavailable: It cannot be started.
        """
        async with self._lock:
            await self._connect()

    async def leave(self) -> None:
        """Leave the spawner. One that is idle ends with its server; one that has gangs stays for the
        next server.
        """
        async with self._lock:
            with contextlib.suppress(OSError, EOFError, Unavailable):
                await self._exchange({"retire_if_idle": True})
            self._disconnect()

    async def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The spawner's answer to a request.

        Raises:
            Unavailable: It does not answer, or cannot be started.
        """
        async with self._lock:
            # The second try has a new connection, since the spawner may have been replaced. A
            # gang that is sent twice starts once: its gate decides.
            for last in (False, True):
                try:
                    return await self._exchange(request)
                except (OSError, EOFError) as error:
                    self._disconnect()
                    if last:
                        raise Unavailable(
                            f"the spawner of this machine does not answer: {error}",
                            public_message="the spawner of this machine does not answer",
                        ) from error
                    await self._connect()
            raise AssertionError

    async def replace_dead(self) -> None:
        """Start another spawner where ours was killed: the control groups that it has made are not
        removed before, and the next job need not wait for it. If it cannot start, the next job says
        why.
        """
        if self._line is None or not self._line.broken:
            return
        async with self._lock:
            if self._line is not None and self._line.broken:
                self._disconnect()
                with contextlib.suppress(OSError, EOFError, Unavailable):
                    await self._connect()

    async def _exchange(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._line is None:
            raise EOFError("not connected")
        return await self._line.exchange(request)

    async def _connect(self) -> None:
        config = codec.encode(self._config)
        with contextlib.suppress(OSError, EOFError):
            self._line = await self._open()
            # A spawner never changes its configuration, so a new configuration needs a new
            # spawner. The supervisors of the old one keep running.
            if (await self._exchange({}))["config"] == config:
                return
            await self._exchange({"retire": True})
            self._disconnect()
        await asyncio.to_thread(self._resident.start, json.dumps(config))
        self._line = await self._open()

    async def _open(self) -> DaemonConnection:
        with contextlib.suppress(FileNotFoundError):  # one of an older release
            # Each spawner makes a token of its own when it starts, so it is read for each
            # connection.
            self._token = (self._root / TOKEN_NAME).read_text("ascii")
        return await self._resident.open(self._token)

    def _disconnect(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None
