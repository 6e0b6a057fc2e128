"""The output of one process on disk, complete up to a limit; past it the middle is dropped and
marked.

``<name>.log`` is the head, at most half of the limit. What follows goes to tail files of a
sixteenth of the limit each, ``<name>.tail-<start>.log`` (``start`` counts all bytes ever written),
of which the newest eight are kept. So a reader can follow by byte position, and sees where a gap
is.

``<name>.times`` says how much had been written at which time: a line at most every second, and none
in a log that is written within one.
"""

from __future__ import annotations

import bisect
import contextlib
import math
import os
import re
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cloud_ml.engines.abilities import LogPart
from cloud_ml.engines.local.failures.excerpt import TAIL_BYTES

_TAIL_FILES = 8
_MARK_PERIOD_S = 1.0
_MARKS_PER_PERIOD = 4096
_MARK = re.compile(rb"(\d{1,12}\.\d{1,6}) (\d{1,18})")
_TAIL = re.compile(r"\.tail-(\d{20})\.log")
_BLOCK_BYTES = 64 * 1024


class LogWriter:
    """Appends output, to what an earlier writer left. ``written`` counts every byte, dropped
    ones included.
    """

    def __init__(self, folder: Path, name: str, limit_bytes: int) -> None:
        self._folder = folder
        self._name = name
        self._head_limit = max(4096, limit_bytes // 2)
        self._tail_limit = max(1024, limit_bytes // (2 * _TAIL_FILES))
        parts = _parts(folder, name)
        self._tails = deque(part.path for part in parts[1:])
        last = parts[-1] if parts else _Part(0, folder / f"{name}.log")
        self._file = _open(last.path)
        self._room = max(0, (self._tail_limit if self._tails else self._head_limit) - last.size)
        self.written = last.start + last.size
        self._tail = bytearray()
        self._marks = folder / f"{name}.times"
        self._marked = len(read_marks(self._marks))
        self._first: float | None = None
        self._next_mark = 0.0

    def write(self, data: bytes) -> None:
        """Add output. A full disk loses the chunk, never the process that writes."""
        self._tail += data[-TAIL_BYTES:]
        # Cut only at twice the length: keeping exactly the end would copy it for each line.
        if len(self._tail) > 2 * TAIL_BYTES:
            del self._tail[:-TAIL_BYTES]
        # Mark before writing: a mark gives the time of the bytes that follow it.
        self._mark()
        view = memoryview(data)
        while view:
            if self._room == 0:
                self._next_tail()
            part = view[: self._room]
            try:
                done = os.write(self._file, part)
            except OSError:
                done = len(part)
            self.written += done
            self._room -= done
            view = view[done:]

    @property
    def tail(self) -> bytes:
        """The end of what this writer was given."""
        return bytes(self._tail[-TAIL_BYTES:])

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)

    def _mark(self) -> None:
        """Note the time, rarer and rarer in a log that is written for hours."""
        now = time.time()
        if now < self._next_mark:
            return
        if self._first is None and not self.written:  # no file for a log that is written at once
            self._first = now
        else:
            lines = [] if self._first is None or self._marked else [f"{self._first:.3f} 0\n"]
            lines.append(f"{now:.3f} {self.written}\n")
            with contextlib.suppress(OSError), self._marks.open("a", encoding="ascii") as marks:
                marks.writelines(lines)
            self._marked += len(lines)
        self._next_mark = now + _period_s(self._marked)

    def _next_tail(self) -> None:
        os.close(self._file)
        path = self._folder / f"{self._name}.tail-{self.written:020d}.log"
        self._file = _open(path)
        self._room = self._tail_limit
        self._tails.append(path)
        if len(self._tails) > _TAIL_FILES:
            self._tails.popleft().unlink(missing_ok=True)


def _open(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


@dataclass(frozen=True, order=True)
class _Part:
    start: int
    path: Path

    @property
    def size(self) -> int:
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0


class LogReader:
    """Reads what a ``LogWriter`` has written so far, and what it writes on.

    ``position`` counts what was written before what ``read`` gives next.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self.position = 0

    def read(self, limit: int = 1 << 18) -> bytes:
        """The next bytes, or nothing when all was given. A gap is told in a line of its own."""
        parts = _parts(self._folder, self._name)
        for part in parts:
            if part.start > self.position:
                dropped, self.position = part.start - self.position, part.start
                return f"\n[… {dropped} bytes of the log dropped here: over the limit …]\n".encode()
            if self.position < part.start + part.size:
                return self._read_part(part, limit)
        return b""

    def skip_to_last_lines(self, lines: int, before: float = math.inf) -> None:
        """Go to where the last ``lines`` lines begin, reading backwards no more than needed.

        What lies at the position ``before`` or behind it does not count.
        """
        needed = lines
        parts = [part for part in _parts(self._folder, self._name) if part.start < before]
        self.position = int(min(parts[-1].start + parts[-1].size, before)) if parts else 0
        if lines <= 0:
            return
        for part in reversed(parts):
            size = min(part.size, before - part.start)
            for position in _newlines_backwards(part, size, skip_last=part is parts[-1]):
                needed -= 1
                if needed == 0:
                    self.position = part.start + position + 1
                    return
            self.position = part.start

    def skip_to(self, moment: float) -> int:
        """Go to what was written at ``moment`` (seconds since 1970) or later, as exactly as times
        were noted.

        Returns how many bytes ``read`` would have given before.
        """
        target, given = self._written_at(moment), 0
        while self.position < target and (data := self.read()):
            given += len(data)
        if (beyond := self.position - target) > 0:
            self.position, given = target, given - min(beyond, given)
        return given

    def _written_at(self, moment: float) -> int:
        parts = _parts(self._folder, self._name)
        if not parts:
            return 0
        with contextlib.suppress(FileNotFoundError):
            if parts[-1].path.stat().st_mtime < moment:
                return parts[-1].start + parts[-1].size
        found = 0
        quiet_from = 0.0
        for number, (at, written) in enumerate(read_marks(self._folder / f"{self._name}.times"), 1):
            # The bytes before this mark were written within one period after the previous mark.
            if at > moment:
                return written if number > 1 and moment >= quiet_from else found
            found, quiet_from = written, at + _period_s(number)
        return found

    def _read_part(self, part: _Part, limit: int) -> bytes:
        try:
            with part.path.open("rb") as file:
                file.seek(self.position - part.start)
                data = file.read(limit)
        except FileNotFoundError:  # dropped while we looked; the next call sees the gap
            return b""
        self.position += len(data)
        return data


@contextlib.contextmanager
def opened_part(folder: Path, name: str, position: int) -> Iterator[LogPart | None]:
    """The part of a log with the byte at ``position``, or the next one behind a gap, open for
    reading; ``None`` if nothing is there yet.
    """
    parts = _parts(folder, name)
    found = next((part for part in parts if position < part.start + part.size), None)
    if found is None:
        yield None
        return
    try:
        descriptor = os.open(found.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # dropped while we looked
        yield None
        return
    try:
        begin = max(position, found.start)
        facts = os.fstat(descriptor)
        marks = read_marks(folder / f"{name}.times")
        place = bisect.bisect_left(marks, begin, key=lambda mark: mark[1])
        at = marks[place][0] if place < len(marks) else facts.st_mtime
        offset = begin - found.start
        last = found is parts[-1]
        yield LogPart(
            descriptor, offset, facts.st_size - offset, begin, last, max(0, int(at * 1000))
        )
    finally:
        os.close(descriptor)


def _period_s(marks: int) -> float:
    """How long after so many marks there is no further one."""
    return float(_MARK_PERIOD_S * 2 ** (marks // _MARKS_PER_PERIOD))


def read_marks(path: Path) -> list[tuple[float, int]]:
    """Times and how much had been written; a line that was cut off, or torn by a power cut, is
    none.
    """
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except OSError:
        return []
    return [(float(found[1]), int(found[2])) for found in map(_MARK.fullmatch, lines) if found]


def _parts(folder: Path, name: str) -> list[_Part]:
    try:
        files = os.listdir(folder)  # noqa: PTH208 - several times for each answer, where a glob takes most of its time
    except (FileNotFoundError, NotADirectoryError):
        return []
    if f"{name}.log" not in files:
        return []
    found = (
        (_TAIL.fullmatch(file.removeprefix(name)), file) for file in files if file.startswith(name)
    )
    tails = (_Part(int(start[1]), folder / file) for start, file in found if start)
    return [_Part(0, folder / f"{name}.log"), *sorted(tails)]


def _newlines_backwards(part: _Part, size: float, *, skip_last: bool) -> Iterator[int]:
    """Where lines end in the first ``size`` bytes, from the last one on; ``skip_last``: not the
    very last byte.
    """
    with contextlib.suppress(FileNotFoundError), part.path.open("rb") as file:
        end = int(min(file.seek(0, os.SEEK_END), size)) - skip_last
        while end > 0:
            start = max(0, end - _BLOCK_BYTES)
            file.seek(start)
            block = file.read(end - start)
            at = len(block)
            while (at := block.rfind(b"\n", 0, at)) >= 0:
                yield start + at
            end = start
