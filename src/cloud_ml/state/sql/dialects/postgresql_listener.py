"""A thread that hears of the commits of other processes. Hints only: followers poll as well."""

from __future__ import annotations

import logging
import os
import selectors
import threading
from collections.abc import Callable
from typing import Any

import psycopg

from cloud_ml.state.sql.dialects.postgresql_errors import DatabaseName

CHANNEL = "cloudml_commits"
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 10.0
logger = logging.getLogger(__name__)


class Listener:
    """Wakes followers when another process has committed. ``start`` and ``stop`` it once each.

    Args:
        place: The database, for messages.
        connect: Opens a connection in autocommit; raises what psycopg raises.
        ignored: Announcements with this content are our own.
        wake: Called from the thread; must not raise.
    """

    def __init__(
        self,
        place: DatabaseName,
        connect: Callable[[], psycopg.Connection[Any]],
        *,
        ignored: str,
        wake: Callable[[], None],
    ) -> None:
        self._place = place
        self._connect = connect
        self._ignored = ignored
        self._wake = wake
        self._stopping = False
        self._ear, self._mouth = os.pipe()  # ends every wait at once
        self._thread = threading.Thread(target=self._run, name="listener", daemon=True)
        self._connection: psycopg.Connection[Any] | None = None

    def start(self) -> None:
        """Listen from now on. If the database does not answer just now, the thread goes on
        trying.
        """
        try:
            self._connection = self._subscribe()
        except psycopg.Error as error:
            self._complain(error)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and its connection."""
        if self._stopping:
            return
        self._stopping = True
        os.write(self._mouth, b"!")
        self._thread.join()
        os.close(self._mouth)
        os.close(self._ear)

    def _run(self) -> None:
        pause = FIRST_PAUSE_S
        while not self._stopping:
            try:
                if self._connection is None:
                    self._connection = self._subscribe()
                    self._wake()  # for all that was said meanwhile
                pause = FIRST_PAUSE_S
                self._hear(self._connection)
            except (psycopg.Error, OSError) as error:
                self._hang_up()
                self._complain(error)
                self._wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
        self._hang_up()

    def _subscribe(self) -> psycopg.Connection[Any]:
        connection = self._connect()
        try:
            connection.execute(f"LISTEN {CHANNEL}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _hear(self, connection: psycopg.Connection[Any]) -> None:
        """Wake followers, until it is time to stop.

        Raises:
            psycopg.Error: The connection is lost.
        """
        while True:
            # Fetch before waiting: notifications that libpq has already read do not make the
            # descriptor readable.
            heard = {notice.payload for notice in connection.notifies(timeout=0)}
            if heard - {self._ignored}:
                self._wake()
            self._wait(None, connection.fileno())
            if self._stopping:
                return

    def _wait(self, seconds: float | None, *descriptors: int) -> None:
        with selectors.DefaultSelector() as selector:
            for descriptor in (self._ear, *descriptors):
                selector.register(descriptor, selectors.EVENT_READ)
            selector.select(seconds)

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _complain(self, error: BaseException) -> None:
        logger.warning(
            "commits of other servers go unheard for a while, and are found by polling",
            extra={"database": self._place.name, "reason": self._place.failure_text(error)},
        )
