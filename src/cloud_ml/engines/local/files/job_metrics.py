"""What jobs of the local engine report: their files of metrics, event files and logs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime

from cloud_ml.engines.abilities import BucketFolder, EventFiles, LogPart, MetricData
from cloud_ml.engines.gang import GangKey
from cloud_ml.engines.local.files import event_files, metric_files
from cloud_ml.engines.local.files.event_files import Root
from cloud_ml.engines.local.files.file_watch import FileWatch
from cloud_ml.engines.local.files.metric_files import MetricFile, MetricWatch
from cloud_ml.engines.local.files.working_directory import CODE
from cloud_ml.engines.local.ledger import Ledger
from cloud_ml.engines.local.logs import logfile
from cloud_ml.errors import NotFound
from cloud_ml.objects.base import LocalFolders

_WORK = "work"
"""What paths in the working folder of a job begin with."""
_METRIC_BYTES = 1 << 18
"""Read at once."""


class JobMetrics:
    """``MetricReports`` and ``MetricFiles`` over the folders of jobs and buckets.

    Args:
        ledger: Knows the folders of jobs.
        folders: Knows those of buckets.
    """

    def __init__(self, ledger: Ledger, folders: LocalFolders | None) -> None:
        self._job_folders = ledger
        self._bucket_folders = folders
        self._metric_watch = MetricWatch()
        self._file_watch = FileWatch()

    def close_watches(self) -> None:
        """Watch nothing more."""
        self._metric_watch.close()
        self._file_watch.close()

    def read_metrics(
        self, key: GangKey, task: str, identity: str, offset: int, *, end: int
    ) -> MetricData | None:
        """See ``engines.abilities.MetricReports``."""
        home, file = self._job_folders.work_folder(key.job_uid), MetricFile(key.attempt, task)
        return metric_files.read(home, file, identity, offset, most=_METRIC_BYTES, end=end)

    def event_files(
        self, job_uid: str, folders: Sequence[BucketFolder], since: datetime
    ) -> EventFiles:
        """See ``engines.abilities.MetricFiles``."""
        return event_files.find(self._event_roots(job_uid, folders), since.timestamp())

    def open_event_file(
        self, job_uid: str, folders: Sequence[BucketFolder], path: str
    ) -> AbstractContextManager[int | None]:
        """See ``engines.abilities.MetricFiles``."""
        return event_files.opened_file(self._event_roots(job_uid, folders), path)

    def open_log(
        self, key: GangKey, task: str, position: int
    ) -> AbstractContextManager[LogPart | None]:
        """See ``engines.abilities.MetricFiles``."""
        return logfile.opened_part(self._job_folders.log_folder(key), task, position)

    def _event_roots(self, job_uid: str, folders: Sequence[BucketFolder]) -> list[Root]:
        """Where a job may have written event files."""
        roots = []
        for one in folders:
            if self._bucket_folders is None:
                break
            with contextlib.suppress(NotFound):
                folder = self._bucket_folders.folder(one.bucket)
                parts = [part for part in one.prefix.split("/") if part]
                uri = "/".join([f"fds://{one.bucket}", *parts])
                roots.append(Root(uri, folder, parts))
        return [*roots, Root(_WORK, self._job_folders.work_folder(job_uid))]

    def watch_metrics(self, job_uid: str) -> None:
        """See ``engines.abilities.MetricReports``."""
        self._metric_watch.watch(self._job_folders.work_folder(job_uid), job_uid)

    def unwatch_metrics(self, job_uid: str) -> None:
        """See ``engines.abilities.MetricReports``."""
        self._metric_watch.forget(job_uid)

    def metric_changes(self) -> AsyncIterator[str]:
        """See ``engines.abilities.MetricReports``."""
        return _changes(self._metric_watch)

    def watch_files(
        self,
        job_uid: str,
        folders: Sequence[BucketFolder],
        *,
        recent: Sequence[str] = (),
        grown: Sequence[str] = (),
        log: GangKey | None = None,
    ) -> None:
        """See ``engines.abilities.MetricFiles``."""
        roots = self._event_roots(job_uid, folders)
        code = Root(_WORK, self._job_folders.work_folder(job_uid), [CODE])
        places = [(event_files.opened_root(root), False) for root in [*roots, code]]
        places += [(event_files.opened_folder(roots, path), False) for path in recent]
        places += [
            (event_files.opened_folder(roots, path.rpartition("/")[0]), True) for path in grown
        ]
        if log is not None:
            logs = Root("logs", self._job_folders.log_folder(log))
            places.append((event_files.opened_root(logs), True))
        self._file_watch.watch(job_uid, places)

    def unwatch_files(self, job_uid: str) -> None:
        """See ``engines.abilities.MetricFiles``."""
        self._file_watch.forget(job_uid)

    def file_changes(self) -> AsyncIterator[str]:
        """See ``engines.abilities.MetricFiles``."""
        return _changes(self._file_watch)


async def _changes(watch: MetricWatch | FileWatch) -> AsyncIterator[str]:
    """The jobs that a watch names, as it does."""
    news, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(watch.descriptor, news.set)
    try:
        while True:
            for uid in watch.changed():
                yield uid
            await news.wait()
            news.clear()
    finally:
        loop.remove_reader(watch.descriptor)
