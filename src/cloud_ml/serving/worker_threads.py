"""Threads for what takes too long for the event loop, each piece of work in its turn."""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from types import TracebackType
from typing import Self

Work = Callable[[], None]


class WorkerThreads:
    """So many threads, for as long as it is entered. Work is not to raise: who gave it hears of
    its end in it.
    """

    def __init__(self, threads: int) -> None:
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"model_{each}") for each in range(threads)
        ]

    def run(self, work: Work) -> None:
        """Have a thread do it, when its turn comes."""
        self._queue.put(work)

    @property
    def has_waiting_work(self) -> bool:
        """Whether work waits for a thread."""
        return not self._queue.empty()

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            work()

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for what was given."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
