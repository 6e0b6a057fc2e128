"""One log of all tasks of a gang, beside the log of each.

Its lines are in the order in which they were read, and begin with the name of the task in brackets.
"""

from __future__ import annotations

from typing import Protocol

from cloud_ml.engines.local.logs.logfile import LogWriter

_LONGEST_LINE = 64 * 1024
"""A line without an end is shown in parts of at least so many bytes."""


class TaskWriter(Protocol):
    """The log of a process that runs."""

    @property
    def written(self) -> int:
        """How many bytes were written, dropped ones included."""

    def write(self, data: bytes) -> None:
        """Add output."""

    @property
    def tail(self) -> bytes:
        """The end of what this writer was given."""

    def close(self) -> None:
        """Let go of the file."""


class MergedLog:
    """Takes output of several tasks and writes whole lines.

    Args:
        writer: The log, closed by ``close``.
    """

    def __init__(self, writer: LogWriter) -> None:
        self._writer = writer
        self._begun: dict[str, bytearray] = {}

    @property
    def written(self) -> int:
        """How many bytes were written."""
        return self._writer.written

    def write(self, name: str, data: bytes) -> None:
        """Add output of the task ``name``. A line that has not ended waits for its end."""
        begun = self._begun.setdefault(name, bytearray())
        before = len(begun)
        begun += data
        # The earlier bytes contain no line feed, so search only the new ones.
        end = begun.rfind(b"\n", before) + 1
        if not end and len(begun) >= _LONGEST_LINE:
            begun += b"\n"
            end = len(begun)
        if end:
            self._writer.write(_prefix_lines(name, bytes(begun[:end])))
            del begun[:end]

    def end(self, name: str) -> None:
        """The task has ended, also the line that it was in."""
        if begun := self._begun.pop(name, None):
            self._writer.write(_prefix_lines(name, bytes(begun) + b"\n"))

    def close(self) -> None:
        """Let go of the file."""
        self._writer.close()


class TaskLog:
    """The log of one task, whose output is also added to the merged one."""

    def __init__(self, writer: LogWriter, merged: MergedLog, name: str) -> None:
        self._writer = writer
        self._merged = merged
        self._name = name

    @property
    def written(self) -> int:
        """How many bytes are in the task's own log, dropped ones included."""
        return self._writer.written

    @property
    def tail(self) -> bytes:
        """See ``LogWriter``."""
        return self._writer.tail

    def write(self, data: bytes) -> None:
        """See ``LogWriter``."""
        self._writer.write(data)
        self._merged.write(self._name, data)

    def close(self) -> None:
        """See ``LogWriter``."""
        self._merged.end(self._name)
        self._writer.close()


def write_line(log: TaskWriter, sentence: str) -> None:
    """Add a line of the platform's own, after the line that the task is in."""
    begun = log.tail[-1:] not in (b"", b"\n")
    log.write(b"\n" * begun + f"{sentence}\n".encode())


def _prefix_lines(name: str, lines: bytes) -> bytes:
    """Whole lines with the task's name before each."""
    prefix = f"[{name}] ".encode()
    return prefix + lines[:-1].replace(b"\n", b"\n" + prefix) + b"\n"
