"""Sockets on which jobs reach the server: one in each network of jobs, on its loopback.

A socket stays in the network in which it was made, so the server accepts connections of an
organisation's jobs without a process in its network and without a rule in any firewall. In the
machine's own network, the port is kept in a file, since jobs that run know it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

from cloud_ml import linux, timers
from cloud_ml.engines.abilities import JobListener
from cloud_ml.engines.local.config import LocalConfig
from cloud_ml.engines.local.ledger import Ledger
from cloud_ml.engines.local.network import HOST, JOB_PORT, NONE, TENANT, pins
from cloud_ml.engines.local.network.listener_client import ListenerClient
from cloud_ml.engines.local.network.pins import Pins

_ADDRESS = "127.0.0.1"
_PORT_FILE = "job-listener.port"
_BACKLOG = 64
_POLL_S = 60.0
logger = logging.getLogger(__name__)


class JobListeners:
    """Listens in the networks that jobs have.

    Args:
        config: The engine's; its ``network`` says where jobs are.
        home: Where networks are mounted.
    """

    def __init__(self, config: LocalConfig, home: Path = pins.HOME) -> None:
        self._fence = config.network.fence
        self._has_init = bool(config.bwrap and config.init)
        self._offers = Ledger(Path(config.root)).listeners
        self._sandboxed = bool(config.bwrap)
        self._file = Path(config.root) / _PORT_FILE
        self._pins = Pins(config.network.instance, home)
        self._known: dict[int, int] = {}
        self._refused: set[int] = set()
        self._gone: list[int] = []
        self._news = asyncio.Event()
        self._machine: socket.socket | None = None
        self._port = 0

    def start(self) -> None:
        """Listen where all jobs are in the machine's network. Blocking."""
        if self._fence == HOST and (made := self._listen_on_machine()) is not None:
            self._machine, self._port = made, made.getsockname()[1]

    def close(self) -> None:
        """Listen no more in the machine's network. Others are whose they were handed to, and are
        made again for whoever asks next.
        """
        if self._machine is not None:
            self._machine.close()
            self._machine = None
        self._known.clear()

    def address(self) -> str:
        """Where jobs find the server; empty where they have no network that leads to it."""
        if self._fence == TENANT or (self._fence == NONE and self._has_init):
            return f"{_ADDRESS}:{JOB_PORT}"
        return f"{_ADDRESS}:{self._port}" if self._port else ""

    def hint(self, tenant: int) -> None:
        """The network of an organisation may be there now."""
        if self._fence != TENANT:
            return
        if pins.identity(self._pins.path(tenant)) != self._known.get(tenant):
            self._news.set()

    async def listeners(self) -> AsyncGenerator[JobListener]:
        """See ``engines.abilities.JobListening``."""
        self._known.clear()  # whoever asked before has closed them
        self._gone = []
        if self._machine is not None and self._machine.fileno() < 0:
            await asyncio.to_thread(self.start)
        if self._machine is not None:
            yield JobListener(None, self._machine, self._sandboxed)
            await asyncio.Event().wait()  # as long as somebody serves on it
        if self._fence == NONE:
            async with contextlib.aclosing(ListenerClient(self._offers).listeners()) as offered:
                async for listener in offered:
                    yield listener
        while self._fence == TENANT:
            for tenant, network in (await asyncio.to_thread(self._networks)).items():
                if self._known.get(tenant) == network:
                    continue
                if (made := await asyncio.to_thread(self._listen_in, tenant)) is not None:
                    self._known[tenant] = network
                    yield JobListener(tenant, made, self._sandboxed)
            for tenant in self._gone:
                del self._known[tenant]
                yield JobListener(tenant, None)
            if self._known or self._refused:
                await timers.wait_for_hint(self._news, _POLL_S)
            else:
                await self._news.wait()
            self._news.clear()

    def _networks(self) -> dict[int, int]:
        """The networks that are whole, by their organisations."""
        found = {
            tenant: pins.identity(self._pins.path(tenant))
            for tenant in self._pins.slots()
            if self._pins.is_ready(tenant)
        }
        there = {tenant: number for tenant, number in found.items() if number is not None}
        self._gone = [tenant for tenant in self._known if tenant not in there]
        return there

    def _listen_in(self, tenant: int) -> socket.socket | None:
        try:
            pin = os.open(self._pins.path(tenant), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # removed within the moment
            return None
        try:
            made = _in_network(pin, lambda: _listen(JOB_PORT))
        except OSError as error:
            if tenant not in self._refused:
                logger.warning(
                    "jobs of organisation %d cannot reach the MLflow endpoint: port %d of their "
                    "network cannot be had: %s", tenant, JOB_PORT, error,
                )  # fmt: skip
            self._refused.add(tenant)
            return None
        finally:
            os.close(pin)
        self._refused.discard(tenant)
        return made

    def _listen_on_machine(self) -> socket.socket | None:
        with contextlib.suppress(OSError, ValueError, OverflowError):
            return _listen(int(self._file.read_text("ascii")))
        try:
            made = _listen(0)
            draft = self._file.with_name(f".{self._file.name}")
            draft.write_text(str(made.getsockname()[1]), "ascii")
            draft.replace(self._file)
        except OSError as error:
            logger.warning("jobs cannot reach the MLflow endpoint: %s", error)
            return None
        return made


def _listen(port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # Connections of an earlier server that are in TIME_WAIT would keep the port for a minute.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((_ADDRESS, port))
        made.listen(_BACKLOG)
        made.setblocking(False)
    except BaseException:
        made.close()
        raise
    return made


def _in_network(network: int, act: Callable[[], socket.socket]) -> socket.socket:
    """What ``act`` makes in a network. The thread that has entered it ends with that.

    Raises:
        OSError: The network cannot be entered, or ``act`` fails.
    """
    made: list[socket.socket] = []
    failed: list[OSError] = []

    def work() -> None:
        try:
            linux.enter_network(network)
            made.append(act())
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=work, name="job-listener")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return made[0]
