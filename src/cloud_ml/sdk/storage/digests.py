"""SHA-256 of what is received, computed by a thread while more is received and written."""

from __future__ import annotations

import hashlib
import queue
import threading

_BATCH_BYTES = 1 << 20
_BATCHES = 8
"""Batches that wait to be hashed: with one that is gathered and one that is hashed, 10 MiB at
most.
"""


class BackgroundDigest:
    """Like an object of ``hashlib.sha256``. What is shorter than a batch is hashed without a
    thread.
    """

    def __init__(self) -> None:
        self._state = hashlib.sha256()
        self._gathered: list[bytes] = []
        self._size = 0
        self._batches: queue.Queue[list[bytes] | None] = queue.Queue(_BATCHES)
        self._thread: threading.Thread | None = None

    def update(self, chunk: bytes) -> None:
        """Add bytes; waits while too many are not hashed yet."""
        self._gathered.append(chunk)
        self._size += len(chunk)
        if self._size >= _BATCH_BYTES:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="cloudml-digest", daemon=True
                )
                self._thread.start()
            self._batches.put(self._gathered)
            self._gathered, self._size = [], 0

    def hexdigest(self) -> str:
        """The digest of all bytes so far, in lower-case hex."""
        self.close()
        for chunk in self._gathered:
            self._state.update(chunk)
        self._gathered, self._size = [], 0
        return self._state.hexdigest()

    def close(self) -> None:
        """Let the thread hash what it has and end; harmless twice."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._batches.put(None)
            thread.join()

    def _run(self) -> None:
        while (batch := self._batches.get()) is not None:
            for chunk in batch:
                self._state.update(chunk)
