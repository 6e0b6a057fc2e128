"""The server's side of sockets on which tasks without a way out reach it.

Supervisors keep these sockets, and offer them in a folder (see ``ListenerStore``). The connection
to a supervisor ends with the attempt, whatever ends that.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

from cloud_ml import linux, timers
from cloud_ml.engines.abilities import JobListener
from cloud_ml.engines.local.network import JOB_PORT
from cloud_ml.engines.local.network.listener_store import OfferName, opened_folder, receive_listener

_POLL_S, _RETRY_S = 60.0, 5.0
logger = logging.getLogger(__name__)


class ListenerClient:
    """Fetches the sockets of all attempts that run.

    Args:
        folder: Where supervisors offer them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._changed = asyncio.Event()
        self._news: deque[JobListener] = deque()
        self._supervisors: dict[str, socket.socket] = {}
        self._listening: set[str] = set()

    async def listeners(self) -> AsyncGenerator[JobListener]:
        """Sockets as they come, and, without one, those whose task is gone.

        Raises:
            OSError: The folder cannot be watched.
        """
        loop, watch = asyncio.get_running_loop(), linux.Watch()
        try:
            watch.arrivals(self._folder)
            loop.add_reader(watch.descriptor, self._changed.set)
            while True:
                self._changed.clear()
                watch.names()  # what is there is listed below, whatever these say
                for name in await self._names():
                    self._fetch(name)
                while self._news:
                    yield self._news.popleft()
                await timers.wait_for_hint(self._changed, _POLL_S)
        finally:
            loop.remove_reader(watch.descriptor)
            watch.close()
            self._close()

    async def _names(self) -> Sequence[str]:
        """What is in the folder."""
        try:
            return await asyncio.to_thread(os.listdir, self._folder)
        except OSError as error:  # too many files are open
            logger.warning("sockets of jobs cannot be looked for: %s", error.strerror)
            self._retry_soon()
            return ()

    def _retry_soon(self) -> None:
        """Soon, but not at once: what is lacking now may be lacking for a while."""
        asyncio.get_running_loop().call_later(_RETRY_S, self._changed.set)

    def _close(self) -> None:
        """Leave all supervisors to another server."""
        for name in list(self._supervisors):
            self._leave(name)
        while self._news:
            if (listener := self._news.popleft().socket) is not None:
                listener.close()

    def _fetch(self, name: str) -> None:
        offer = OfferName.parse(name)
        if offer is None or name in self._supervisors:
            return
        try:
            made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError:
            self._retry_soon()
            return
        try:
            with opened_folder(self._folder) as folder:
                made.connect(f"{folder}/{name}")
        except ConnectionRefusedError:  # its supervisor was killed
            made.close()
            (self._folder / name).unlink(missing_ok=True)
            return
        except FileNotFoundError:  # it is over
            made.close()
            return
        except OSError:  # many connect, or too many files are open
            made.close()
            self._retry_soon()
            return
        self._supervisors[name] = made
        asyncio.get_running_loop().add_reader(made, self._hear, name, offer)

    def _hear(self, name: str, offer: OfferName) -> None:
        """The supervisor sends the socket, or is gone."""
        listener: socket.socket | None = None
        try:
            listener = receive_listener(self._supervisors[name], JOB_PORT)
        except BlockingIOError:
            return
        except (OSError, ValueError) as error:
            logger.warning("job %s cannot reach the server: %s", offer.job_uid, error)
            self._retry_soon()  # the system drops what it has no descriptor for
        if listener is None:
            self._leave(name)
            return
        self._listening.add(name)
        self._put(name, offer, listener)

    def _put(self, name: str, offer: OfferName, listener: socket.socket | None) -> None:
        job_listener = JobListener(
            offer.tenant, listener, sandboxed=True, network=name, job_uid=offer.job_uid
        )
        self._news.append(job_listener)
        self._changed.set()

    def _leave(self, name: str) -> None:
        supervisor = self._supervisors.pop(name)
        asyncio.get_running_loop().remove_reader(supervisor)
        supervisor.close()
        offer = OfferName.parse(name)
        if name in self._listening and offer is not None:
            self._listening.discard(name)
            self._put(name, offer, None)
