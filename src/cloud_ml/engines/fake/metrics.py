"""What jobs of the fake engine report: lines of metrics, event files, and their logs as files."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime

from cloud_ml.engines.abilities import BucketFolder, EventFile, EventFiles, LogPart, MetricData
from cloud_ml.engines.fake.machine import Machine
from cloud_ml.engines.gang import GangKey


class FakeMetrics:
    """``MetricReports`` and ``MetricFiles`` over the files of a machine in memory."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._watched: set[str] = set()
        self._reported: asyncio.Queue[str] = asyncio.Queue()
        self._watched_files: dict[str, tuple[set[str], set[str]]] = {}
        """Job → the folders in which new names are heard of, and those in which growth is, too."""
        self._changed: asyncio.Queue[str] = asyncio.Queue()

    def report_metrics(self, key: GangKey, task: str, lines: bytes) -> None:
        """Have a process write to its file of metrics."""
        files = self.machine.metric_files
        files[key, task] = files.get((key, task), b"") + lines
        if key.job_uid in self._watched:
            self._watched.discard(key.job_uid)
            self._reported.put_nowait(key.job_uid)

    def read_metrics(
        self, key: GangKey, task: str, identity: str, offset: int, *, end: int
    ) -> MetricData | None:
        file = self.machine.metric_files.get((key, task))
        if file is None:
            return None
        data = file[offset if identity else 0 : end]
        return MetricData("file", offset, data, more=False, size=len(file))

    def write_event_file(self, job_uid: str, path: str, data: bytes) -> None:
        """Have a job write to an event file."""
        files = self.machine.event_files.setdefault(job_uid, {})
        names, growth = self._watched_files.get(job_uid, (set(), set()))
        # A folder of which nothing was known appears in one above it.
        new = path not in files and bool(names & {path[:at] for at in _slashes(path)})
        files[path] = files.get(path, b"") + data
        if new or _folder_of(path) in growth:
            self._watched_files.pop(job_uid)
            self._changed.put_nowait(job_uid)

    def watch_files(
        self,
        job_uid: str,
        folders: Sequence[BucketFolder],
        *,
        recent: Sequence[str] = (),
        grown: Sequence[str] = (),
        log: GangKey | None = None,
    ) -> None:
        del log
        growth = set(map(_folder_of, grown))
        self._watched_files[job_uid] = ({*_roots(folders), *recent, *growth}, growth)

    def unwatch_files(self, job_uid: str) -> None:
        self._watched_files.pop(job_uid, None)

    async def file_changes(self) -> AsyncIterator[str]:
        while True:
            yield await self._changed.get()

    def event_files(
        self, job_uid: str, folders: Sequence[BucketFolder], since: datetime
    ) -> EventFiles:
        del since  # all are of this job
        files = self.machine.event_files.get(job_uid, {})
        found = [
            EventFile(path, path.removeprefix(f"{root}/"), "file", len(data))
            for root in _roots(folders)
            for path, data in files.items()
            if path.startswith(f"{root}/")
        ]
        return EventFiles(found, recent=sorted({_folder_of(file.path) for file in found}))

    @contextlib.contextmanager
    def open_event_file(
        self, job_uid: str, folders: Sequence[BucketFolder], path: str
    ) -> Iterator[int | None]:
        del folders
        data = self.machine.event_files.get(job_uid, {}).get(path)
        if data is None:
            yield None
            return
        with _in_memory(data) as descriptor:
            yield descriptor

    @contextlib.contextmanager
    def open_log(self, key: GangKey, task: str, position: int) -> Iterator[LogPart | None]:
        data = self.machine.logs.get((key, task), b"")
        if position >= len(data):
            yield None
            return
        with _in_memory(data) as descriptor:
            left, at = len(data) - position, int(time.time() * 1000)
            yield LogPart(descriptor, position, left, position, last=True, at=at)

    def watch_metrics(self, job_uid: str) -> None:
        self._watched.add(job_uid)

    def unwatch_metrics(self, job_uid: str) -> None:
        self._watched.discard(job_uid)

    async def metric_changes(self) -> AsyncIterator[str]:
        while True:
            yield await self._reported.get()


def _roots(folders: Sequence[BucketFolder]) -> list[str]:
    """Where a job may write event files."""
    return ["work", *(f"fds://{one.bucket}/{one.prefix}".rstrip("/") for one in folders)]


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0]


def _slashes(path: str) -> Iterator[int]:
    return (at for at, character in enumerate(path) if character == "/")


@contextlib.contextmanager
def _in_memory(data: bytes) -> Iterator[int]:
    """A file with these bytes that has no name."""
    descriptor = os.memfd_create("fake")
    try:
        os.write(descriptor, data)
        yield descriptor
    finally:
        os.close(descriptor)
