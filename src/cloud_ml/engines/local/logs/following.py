"""Logs that are followed while they grow: one watch of the file system, and each log read once for
all who follow.

What was written a moment ago is kept; whoever is behind that reads the file for himself. So a slow
follower costs nothing but his own reading, and a thousand quick ones cost one. (A watch each would
not do: a user may have 128.)
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path

from cloud_ml import linux
from cloud_ml.engines.gang import GangKey
from cloud_ml.engines.local.ledger import Ledger
from cloud_ml.engines.local.logs.logfile import LogReader

_KEPT_BYTES = 1 << 20
_POLL_S = 1.0
_PASSES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""What a machine lacks for a while: a log does not end there."""
_GATHER_S = 0.02
"""Shortest time between two looks at a log: somebody who prints without end is read in gulps."""

logger = logging.getLogger(__name__)


class Followers:
    """Everybody who follows a log of this engine. Belongs to one event loop.

    Args:
        ledger: Where logs and reports are.
        is_over: Whether an attempt writes no more.
    """

    def __init__(self, ledger: Ledger, is_over: Callable[[GangKey], bool]) -> None:
        self._ledger = ledger
        self._is_over = is_over
        self._tails: dict[tuple[GangKey, str], _Tail] = {}
        self._watch: linux.Watch | None = None
        self._folders: dict[int, set[_Tail]] = {}
        self._reports = -1

    async def follow(self, key: GangKey, process: str, reader: LogReader) -> AsyncGenerator[bytes]:
        """What ``reader`` has not given yet, and what comes, until the attempt is over."""
        with self._join_tail(key, process) as (tail, grown):
            while True:
                grown.clear()
                over = tail.over  # first: what was written before that is then read below
                while chunk := tail.next(reader):
                    yield chunk
                if over:
                    return
                await grown.wait()

    @contextlib.contextmanager
    def _join_tail(self, key: GangKey, process: str) -> Iterator[tuple[_Tail, asyncio.Event]]:
        tail = self._tails.get((key, process)) or self._begin(key, process)
        grown = asyncio.Event()
        tail.followers.add(grown)
        try:
            yield tail, grown
        finally:
            tail.followers.discard(grown)
            if not tail.followers:
                self._end(tail)

    def _begin(self, key: GangKey, process: str) -> _Tail:
        folder = self._ledger.log_folder(key)
        tail = self._tails[key, process] = _Tail(key, process, folder, self._is_over)
        # There are no more watches, or the folder is gone: the log is looked at every second.
        with contextlib.suppress(OSError):
            # Only before the attempt is claimed. Its supervisor makes the folder, and it must not
            # come back after the job was removed.
            if self._ledger.gate(key) is None:
                folder.mkdir(parents=True, exist_ok=True)
            if self._watch is None:
                self._watch = linux.Watch()
                self._reports = self._watch.arrivals(self._ledger.reports)
                asyncio.get_running_loop().add_reader(self._watch.descriptor, self._handle_events)
            tail.number = self._watch.folder(folder)
            # inotify gives the same number for a folder that is watched already, so tails may
            # share one.
            self._folders.setdefault(tail.number, set()).add(tail)
        tail.start()
        return tail

    def _end(self, tail: _Tail) -> None:
        tail.stop()
        if self._tails.get((tail.key, tail.process)) is tail:
            del self._tails[tail.key, tail.process]
        others = self._folders.get(tail.number, set())
        others.discard(tail)
        if (
            not others
            and self._folders.pop(tail.number, None) is not None
            and self._watch is not None
        ):
            self._watch.forget(tail.number)
        if not self._tails and self._watch is not None:
            asyncio.get_running_loop().remove_reader(self._watch.descriptor)
            self._watch.close()
            self._watch = None

    def _handle_events(self) -> None:
        assert self._watch is not None
        for number, name in set(self._watch.events()):
            for tail in self._folders.get(number, ()):
                tail.look_soon()
            if number == self._reports:
                for key, process in self._tails:
                    if name == f"{key}.json":
                        self._tails[key, process].look_soon()


class _Tail:
    """The end of one log. ``over`` once nothing more is written, and all is read."""

    def __init__(
        self, key: GangKey, process: str, folder: Path, is_over: Callable[[GangKey], bool]
    ) -> None:
        self.key, self.process = key, process
        self.number = -1
        self.over = False
        self.followers: set[asyncio.Event] = set()
        self._is_over = is_over
        self._reader = LogReader(folder, process)
        self._reader.skip_to_last_lines(0)
        self._kept: deque[tuple[int, int, bytes]] = deque()
        self._kept_bytes = 0
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.get_running_loop().create_task(
            self._look_on(), name=f"log of {self.key}"
        )

    def stop(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()

    def look_soon(self) -> None:
        """Something happened."""
        self._woken.set()

    def next(self, reader: LogReader) -> bytes:
        """What comes next for this reader; empty when it has all that is known of."""
        if reader.position >= self._reader.position:
            return b""
        for before, after, data in self._kept:
            if before == reader.position or (
                before < reader.position < after and len(data) == after - before
            ):
                chunk = data[reader.position - before :]
                reader.position = after
                return chunk
        return reader.read()

    async def _look_on(self) -> None:
        try:
            while not self.over:
                self._woken.clear()
                try:
                    # Ask before reading the log. Then the read covers everything that was written
                    # before the end.
                    over = self._is_over(self.key)
                    grown = self._read()
                except OSError as error:
                    if error.errno not in _PASSES:
                        raise
                    await asyncio.sleep(_POLL_S)
                    continue
                self.over = over
                if over or grown:
                    self._tell()
                await asyncio.sleep(_GATHER_S)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_POLL_S):
                        await self._woken.wait()
        except OSError:
            logger.exception("a log cannot be followed any more", extra={"attempt": str(self.key)})
        finally:
            self.over = True
            self._tell()

    def _read(self) -> bool:
        before = start = self._reader.position
        while data := self._reader.read():
            after = self._reader.position
            self._kept.append((before, after, data))
            self._kept_bytes += len(data)
            while self._kept_bytes > _KEPT_BYTES:
                self._kept_bytes -= len(self._kept.popleft()[2])
            before = after
        return before > start

    def _tell(self) -> None:
        for follower in self.followers:
            follower.set()
