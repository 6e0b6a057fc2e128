"""What ended jobs keep on the disk, by organisation: their working folders and logs stay until the
jobs are deleted.

Each job that has ended has an empty file in its organisation's folder here, whose name says how
much it keeps. The sum of these names is bounded, or one organisation could fill the disk with jobs
that each stay within their limit. The sum stands beside the folder: see ``KeptDiskSum``.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from cloud_ml.engines.local import small_files
from cloud_ml.engines.local.disk.kept_sum import KeptDiskSum
from cloud_ml.engines.local.disk.measuring import Hidden, Sum, count
from cloud_ml.models.common import format_memory

NO_LIMIT, AS_MUCH_AS_IS_FREE = 0, -1
"""Values of the limit that are no size."""
_ALWAYS_ALLOWED = 2**30
_STEPS = 20_000
_RECORD = "kept"


class KeptDisk:
    """The sizes of all jobs that have ended.

    Args:
        folder: Where they are noted.
        jobs: The folders of jobs; each has a record of what was noted of it.
        boot: Changes when the machine restarts.
    """

    def __init__(self, folder: Path, jobs: Path, boot: str) -> None:
        self._folder = folder
        self._jobs = jobs
        self._boot = boot

    def note(self, tenant: int, job_uid: str, at_least: int = 0) -> None:
        """Measure a job that has ended. One with a great many files counts as what was measured of
        it before.

        A full disk loses the note.
        """
        size = max(at_least, self._measure(job_uid))
        # A job that ran again has a note from its earlier run. Without this, it would count
        # twice.
        self.drop(job_uid)
        name = f"{tenant}/{job_uid}.{size}"
        with contextlib.suppress(OSError):
            (self._folder / str(tenant)).mkdir(parents=True, exist_ok=True, mode=0o700)
            # Write the record first, because ``drop`` needs it to find the file. A record without
            # a file counts for nothing.
            small_files.write(f"{self._jobs}/{job_uid}/{_RECORD}", name.encode("ascii"))
            with self._sum(str(tenant)).changing() as changes:
                (self._folder / name).touch(mode=0o600)
                changes.append(size)

    def drop(self, job_uid: str) -> None:
        """The job keeps nothing any more. Harmless twice."""
        record = self._record(job_uid)
        if not record:
            return
        tenant = record.partition("/")[0]
        with contextlib.suppress(OSError), self._sum(tenant).changing() as changes:
            # If the file is missing, the error leaves ``changing`` before it writes the sum, so
            # the next reader counts again.
            (self._folder / record).unlink()
            changes.append(-_size_of(record))

    def total(self, tenant: int, begins: str = "", allowance: int = 0) -> int:
        """Bytes that the ended jobs of an organisation keep.

        Of a job that ``begins`` again, what it keeps beyond its ``allowance`` counts: the output of
        its attempts.
        """
        total = self._sum(str(tenant)).read()
        record = self._record(begins) if begins else ""
        if record and (self._folder / record).exists():
            total -= min(_size_of(record), allowance)
        return total

    def excess(self, tenant: int, job_uid: str, limit: int, allowance: int = 0) -> str:
        """Why the job may not start, as a sentence; empty if it may.

        Args:
            tenant: Its organisation.
            job_uid: The job.
            limit: Bytes; or ``NO_LIMIT``, or ``AS_MUCH_AS_IS_FREE``.
            allowance: The disk limit of the job. What its earlier attempts keep within it does not
                count.
        """
        if limit == NO_LIMIT:
            return ""
        total = self.total(tenant, job_uid, allowance)
        allowed = max(self._free(), _ALWAYS_ALLOWED) if limit == AS_MUCH_AS_IS_FREE else limit
        if total <= allowed:
            return ""
        which = (
            "as much as is free now"
            if limit == AS_MUCH_AS_IS_FREE
            else "the most that they may keep"
        )
        return (
            f"ended jobs of the organisation keep {format_memory(total)} on the server's disk, "
            f"more than {format_memory(allowed)}, {which}; delete jobs that are not needed any "
            "more (cloudml jobs delete)"
        )

    def _record(self, job_uid: str) -> str:
        """The name under which a job is noted; empty without one."""
        try:
            return small_files.content(f"{self._jobs}/{job_uid}/{_RECORD}").decode("ascii")
        except OSError:
            return ""

    def _sum(self, tenant: str) -> KeptDiskSum:
        folder = self._folder / tenant
        return KeptDiskSum(
            folder, self._folder / f"{tenant}.sum", self._boot, lambda: _count(folder)
        )

    def _measure(self, job_uid: str) -> int:
        job, found = f"{self._jobs}/{job_uid}", Sum()
        with contextlib.suppress(Hidden, OSError):
            names = os.listdir(job)  # noqa: PTH208 - at each end of a job
            attempts = [name for name in names if name.isdigit()]
            folders = [f"{job}/work", *(f"{job}/{name}/logs" for name in attempts)]
            for step, _ in enumerate(count(folders, (), found)):
                if step >= _STEPS:
                    break
        return found.size

    def _free(self) -> int:
        facts = os.statvfs(self._jobs)
        return facts.f_bavail * facts.f_frsize


def _size_of(name: str) -> int:
    size = name.rpartition(".")[2]
    return int(size) if size.isdigit() else 0


def _count(folder: Path) -> int:
    try:
        return sum(map(_size_of, os.listdir(folder)))  # noqa: PTH208 - there may be a great many
    except FileNotFoundError:
        return 0
