"""Transfers of files: by the blocking face, in a few threads, each of which can be called off.

Files block whoever reads them, so a transfer needs a thread in any case. It takes the blocking
transfers with their resumption and their checks as they are; what is added is an end that does not
wait for the network.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from weakref import WeakSet

from cloud_ml.sdk.config import Credentials, TokenCredentials
from cloud_ml.sdk.connections import Connection, ConnectionPool
from cloud_ml.sdk.endpoint import Endpoint
from cloud_ml.sdk.progress import Progress
from cloud_ml.sdk.retries import RetryPolicy
from cloud_ml.sdk.storage.client import Storage
from cloud_ml.sdk.storage.transfers import Transfers
from cloud_ml.sdk.transport import CONNECT_TIMEOUT_S, Transport

T = TypeVar("T")
PARTING_S = 2.0
"""How long a cancelled task waits for its thread. It ends in milliseconds, unless it is just
reading a large file to digest it; then nobody waits, and it ends when it has.
"""


class TransferCancelled(BaseException):
    """Nobody wants the transfer any more. Raised in its thread, and not an error that would be
    tried again.
    """


class FileThreads:
    """Runs transfers in threads of its own, as many at once as the settings say."""

    def __init__(
        self,
        endpoint: Endpoint,
        credentials: Credentials | TokenCredentials,
        transfers: Transfers,
        *,
        retry: RetryPolicy,
    ) -> None:
        self._endpoint = endpoint
        self._credentials = credentials
        self._transfers = transfers
        self._retry = retry
        self._threads: ThreadPoolExecutor | None = None
        self._users = 0

    async def run(
        self, work: Callable[[Storage, Progress | None], T], progress: Progress | None
    ) -> T:
        """What ``work`` returns. When the task is cancelled, its connections are cut and its
        thread ends.
        """
        loop = asyncio.get_running_loop()
        pool = _Pool(self._endpoint)
        transport = Transport(
            self._endpoint, self._credentials, retry=self._retry, sleep=pool.sleep, pool=pool
        )

        def tell(done: int, total: int | None) -> None:
            pool.check()
            if progress is not None:
                with contextlib.suppress(RuntimeError):  # the loop is over
                    loop.call_soon_threadsafe(progress, done, total)

        def carry_out() -> T:
            try:
                pool.check()
                return work(Storage(transport, self._transfers), tell)
            finally:
                transport.close()

        with self._thread() as threads:
            thread = threads.submit(carry_out)
            running = asyncio.wrap_future(thread)
            running.add_done_callback(
                lambda future: future.cancelled() or future.exception()
            )  # somebody has looked
            try:
                # Unshielded, the cancellation would end ``running``, and the end of the thread
                # could not be waited for below.
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                # Only work that has not begun can be cancelled; what runs ends when its connections
                # are cut.
                if not thread.cancel():
                    pool.call_off()
                    await asyncio.wait({running}, timeout=PARTING_S)
                raise

    @contextlib.contextmanager
    def _thread(self) -> Iterator[ThreadPoolExecutor]:
        """The threads, which are there as long as something is transferred."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(
                self._transfers.parallel, thread_name_prefix="cloudml-files"
            )
        threads = self._threads
        self._users += 1
        try:
            yield threads
        finally:
            self._users -= 1
            if not self._users:
                self._threads = None
                threads.shutdown(wait=False)


class _Pool(ConnectionPool):
    """Connections of one transfer, which another thread may cut."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint, connect_timeout_s=CONNECT_TIMEOUT_S)
        self._over = threading.Event()
        self._given = WeakSet[Connection]()

    def acquire(self, *, read_timeout_s: float) -> Connection:
        self.check()
        connection = super().acquire(read_timeout_s=read_timeout_s)
        self._given.add(connection)
        if self._over.is_set():  # called off while the connection was made
            connection.close()
            raise TransferCancelled
        return connection

    def check(self) -> None:
        """Raise ``TransferCancelled`` if the transfer was."""
        if self._over.is_set():
            raise TransferCancelled

    def sleep(self, delay_s: float) -> None:
        """Pause between two tries."""
        self._over.wait(delay_s)
        self.check()

    def call_off(self) -> None:
        """From another thread: cut what is open, and let nothing else be opened."""
        # Before the cuts: a connection that is made meanwhile is noticed in ``acquire``.
        self._over.set()
        for connection in list(self._given):
            with contextlib.suppress(OSError):
                connection.cut()
