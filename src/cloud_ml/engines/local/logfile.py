"""The output of one process on disk, complete up to a limit; past it the middle is dropped and marked.

``<name>.log`` is the head, at most half of the limit. What follows goes to tail files of a sixteenth of
the limit each, ``<name>.tail-<start>.log`` (``start`` counts all bytes ever written), of which the
newest eight are kept. So a reader can follow by byte position, and sees where a gap is.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cloud_ml.engines.local.lastwords import TAIL_BYTES

_TAIL_FILES = 8


class LogWriter:
    """Appends output, to what an earlier writer left. ``written`` counts every byte, dropped ones included.

    ``tail`` is the end of what this writer was given.
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
        self.tail = b""

    def write(self, data: bytes) -> None:
        """Add output. A full disk loses the chunk, never the process that writes."""
        self.tail = (self.tail + data)[-TAIL_BYTES:]
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

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)

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
    """Reads what a ``LogWriter`` has written so far, and what it writes on."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._position = 0

    def read(self, limit: int = 1 << 18) -> bytes:
        """The next bytes, or nothing when all was given. A gap is told in a line of its own."""
        parts = _parts(self._folder, self._name)
        for part in parts:
            if part.start > self._position:
                dropped, self._position = part.start - self._position, part.start
                return f"\n[… {dropped} bytes of the log dropped here: over the limit …]\n".encode()
            if self._position < part.start + part.size:
                return self._read_part(part, limit)
        return b""

    def skip_to_last_lines(self, lines: int) -> None:
        """Go to where the last ``lines`` lines begin, reading backwards no more than needed."""
        needed = lines
        parts = _parts(self._folder, self._name)
        self._position = parts[-1].start + parts[-1].size if parts else 0
        if lines <= 0:
            return
        for number, part in enumerate(reversed(parts)):
            content = part.path.read_bytes() if part.path.exists() else b""
            body = content[:-1] if number == 0 and content.endswith(b"\n") else content
            for position in _newlines_backwards(body):
                needed -= 1
                if needed == 0:
                    self._position = part.start + position + 1
                    return
            self._position = part.start

    def _read_part(self, part: _Part, limit: int) -> bytes:
        try:
            with part.path.open("rb") as file:
                file.seek(self._position - part.start)
                data = file.read(limit)
        except FileNotFoundError:  # dropped while we looked; the next call sees the gap
            return b""
        self._position += len(data)
        return data


def _parts(folder: Path, name: str) -> list[_Part]:
    head = folder / f"{name}.log"
    if not head.exists():
        return []
    prefix = f"{name}.tail-"
    tails = (_Part(int(path.name[len(prefix) : -len(".log")]), path) for path in folder.glob(f"{prefix}*.log"))
    return [_Part(0, head), *sorted(tails)]


def _newlines_backwards(data: bytes) -> Iterator[int]:
    end = len(data)
    while (position := data.rfind(b"\n", 0, end)) >= 0:
        yield position
        end = position
