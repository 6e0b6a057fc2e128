"""Logs of the fake engine: one of each process, and one of all tasks of a gang."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence

from cloud_ml.engines.abilities import ALL_TASKS
from cloud_ml.engines.fake.change_feed import ChangeFeed
from cloud_ml.engines.fake.machine import Machine
from cloud_ml.engines.gang import GangKey


class FakeLogs:
    """The logs of a machine in memory.

    Args:
        machine: Keeps the bytes.
        feed: Wakes those who follow a log.
    """

    def __init__(self, machine: Machine, feed: ChangeFeed) -> None:
        self._machine = machine
        self._feed = feed

    def create(self, key: GangKey, names: Iterable[str]) -> None:
        """Begin empty logs, where there are none yet."""
        for name in names:
            self._machine.logs.setdefault((key, name), b"")

    def append(self, key: GangKey, process: str, output: bytes) -> None:
        """Add to a process's log, and to that of all tasks where there is one."""
        logs = self._machine.logs
        logs[key, process] = logs.get((key, process), b"") + output
        if (key, ALL_TASKS) in logs:
            lines = output.splitlines(keepends=True)
            logs[key, ALL_TASKS] += b"".join(f"[{process}] ".encode() + line for line in lines)
        self._feed.add(key.job_uid)

    def content(self, key: GangKey, process: str) -> bytes:
        """What a process has written so far."""
        return self._machine.logs.get((key, process), b"")

    def streams(self, job_uid: str) -> Sequence[tuple[int, str]]:
        """The attempts and names of the logs of a job."""
        return [(key.attempt, name) for key, name in self._machine.logs if key.job_uid == job_uid]

    def forget(self, job_uid: str) -> None:
        """Drop the logs of a job."""
        for stream in [stream for stream in self._machine.logs if stream[0].job_uid == job_uid]:
            del self._machine.logs[stream]

    async def read(
        self, key: GangKey, process: str, *, lines: int | None, follow: bool
    ) -> AsyncIterator[bytes]:
        """A log, or its last lines; with ``follow`` until the gang is over."""
        position = 0
        if lines is not None:
            content = self.content(key, process)
            kept = content.splitlines(keepends=True)[-lines:] if lines > 0 else []
            position = len(content) - sum(map(len, kept))
        while True:
            gang = self._machine.gangs.get(key)
            over = not follow or (gang is not None and gang.state.over)
            content = self.content(key, process)
            if len(content) > position:
                yield content[position:]
                position = len(content)
                if not over:
                    continue  # the reader took its time: what was written meanwhile woke nobody
            if over:
                return
            await self._feed.wait()
