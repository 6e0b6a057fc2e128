"""The logs of an attempt: one of each task, and one of all."""

from __future__ import annotations

from pathlib import Path

from cloud_ml.engines.abilities import ALL_TASKS
from cloud_ml.engines.local.logs.logfile import LogWriter
from cloud_ml.engines.local.logs.logview import note_code
from cloud_ml.engines.local.logs.merged_log import MergedLog, TaskLog, TaskWriter
from cloud_ml.engines.local.resolved_gang import ResolvedGang

_FULL_LOGS = 64
"""The logs of a gang of more tasks have as much room as those of so many, together."""


class AttemptLogs:
    """Opens the logs of an attempt.

    Args:
        gang: Its tasks. One process alone has no log of all beside its own.
        folder: Where the logs are.
        limit_bytes: How long a log becomes.
    """

    def __init__(self, gang: ResolvedGang, folder: Path, limit_bytes: int) -> None:
        self._gang = gang
        self.folder = folder
        self._limit_bytes = limit_bytes
        self._merged: MergedLog | None = None

    def writer(self, name: str) -> TaskWriter:
        """The log of a process; opened anew for each of its commands."""
        if not self._gang.has_tasks:
            return LogWriter(self.folder, name, self._limit_bytes)
        count = max(1, len(self._gang.tasks))
        together = self._limit_bytes * min(count, _FULL_LOGS)
        if self._merged is None:
            self._merged = MergedLog(LogWriter(self.folder, ALL_TASKS, together))
        return TaskLog(LogWriter(self.folder, name, together // count), self._merged, name)

    def written(self, name: str) -> int:
        """How much the log of a process has, of which no other writer is open."""
        writer = self.writer(name)
        try:
            return writer.written
        finally:
            writer.close()

    def write(self, words: bytes) -> None:
        """Add to the first process's log."""
        writer = self.writer(self._gang.first.name)
        writer.write(words)
        writer.close()

    def note_code(self, name: str, written: int) -> None:
        """Note where the output of the code begins or ends in the log of a task, and with the
        first one's in the log of all.
        """
        note_code(self.folder, name, written)
        if self._merged is not None and name == self._gang.first.name:
            note_code(self.folder, ALL_TASKS, self._merged.written)

    def close(self) -> None:
        """Let go of the log of all."""
        if self._merged is not None:
            self._merged.close()
            self._merged = None
