"""A bound of the time that a statement of a caller's making may take.

PostgreSQL ends each statement after a while. SQLite has to be asked to look at the clock.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sqlalchemy import Connection

from cloud_ml.errors import Unavailable
from cloud_ml.state import tracking_rules

_INSTRUCTIONS = 500
"""Of SQLite's virtual machine, between two looks at the clock: some 20 rows."""
_AT_ONCE = 3
"""So many searches run at once: each holds one of the store's few connections that read."""


class SearchSlots:
    """Lets few searches run at once, whoever they belong to."""

    def __init__(self) -> None:
        self._slots = threading.BoundedSemaphore(_AT_ONCE)

    @contextmanager
    def slot(self, seconds: float) -> Iterator[None]:
        """Wait for one, as long as a search may take.

        Raises:
            Unavailable: There is none.
        """
        if not self._slots.acquire(timeout=seconds):
            raise Unavailable("other searches take all the time there is", hint="Try again.")
        try:
            yield
        finally:
            self._slots.release()


@contextmanager
def time_limit(connection: Connection, seconds: float) -> Iterator[None]:
    """End the statements of the block when they take longer.

    Raises:
        InvalidRequest: They took longer.
    """
    late = time.monotonic() + seconds
    driver = connection.connection.driver_connection
    watched = driver if isinstance(driver, sqlite3.Connection) else None
    if watched is not None:
        watched.set_progress_handler(lambda: time.monotonic() > late, _INSTRUCTIONS)
    try:
        yield
    except Unavailable as error:
        if time.monotonic() > late:
            raise tracking_rules.search_too_long(seconds) from error
        raise
    finally:
        if watched is not None:
            with suppress(sqlite3.ProgrammingError):  # it was closed, as what was interrupted is
                watched.set_progress_handler(None, 0)
