"""Project IDs for jobs, so that the kernel holds each job to its disk limit.

Each ID has a symbolic link here whose target is the job's uid: made at once or not at all, and
found again after a kill. It is given back when the job is deleted, or at the next start.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.local.disk import project_quotas
from cloud_ml.engines.local.processes.limits import Verdict
from cloud_ml.models.common import format_memory

_BLOCK = 4096
_REFUSALS = (os.strerror(errno.ENOSPC).encode(), os.strerror(errno.EDQUOT).encode())
"""What a program prints when the kernel refuses a write."""


def unusable(folder: Path, first: int, *, own_users: bool) -> str:
    """Why the kernel cannot hold jobs to their limits, as a sentence; empty if it can.

    Args:
        folder: Where jobs run, or will run.
        first: The first number that jobs may have; 0 for none.
        own_users: Whether jobs run as users of their own in user namespaces.
    """
    if not first:
        return "engine.project_id_base is 0"
    # Quotas do not bind root, and outside of a user namespace the owner of a file may change its
    # project.
    if not own_users:
        return "jobs have no users and user namespaces of their own"
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    try:
        return (
            ""
            if project_quotas.enforced_on(there)
            else "the file system is not mounted with prjquota"
        )
    except OSError as error:
        return f"the kernel or the file system has none ({error.strerror})"


@dataclass(frozen=True)
class ProjectLimit:
    """A job's project: a limit that the kernel keeps."""

    folder: Path
    project: int
    limit: int

    def verdict(self, tail: bytes | None = None) -> Verdict | None:
        """The job has taken all that it may have, or failed because of it: ``tail`` is what it
        printed last.

        A file system may refuse a large write as a whole, so a program that was refused may use
        less than the limit.
        """
        try:
            quota = project_quotas.quota_of(self.folder, self.project)
        except OSError:  # the limit holds, and what the job says stays its reason
            return None
        refused = tail is not None and any(words in tail for words in _REFUSALS)
        if quota.most_files and quota.files >= quota.most_files:
            return Verdict(
                Reason.DISK_QUOTA,
                f"DiskQuotaExceeded: more than {quota.most_files} files and folders",
            )
        # The kernel counts whole blocks, so a full project may stay a little below its limit.
        if quota.used > self.limit - _BLOCK or (refused and quota.used >= self.limit // 2):
            return Verdict(
                Reason.DISK_QUOTA, f"DiskQuotaExceeded: {format_memory(self.limit)} exceeded"
            )
        return None


class ProjectIds:
    """The project IDs that jobs have.

    Args:
        folder: Where they are noted.
        jobs: The folders of jobs, on the file system that has the quotas.
    """

    def __init__(self, folder: Path, jobs: Path) -> None:
        self._folder = folder
        self._jobs = jobs

    def bind(
        self, job_uid: str, folders: Sequence[Path], *, first: int, size: int, files: int
    ) -> ProjectLimit:
        """Have the kernel hold what is made in ``folders`` to ``size`` bytes and ``files`` inodes.
        Harmless twice: the first folder tells the project that the job has.

        Raises:
            OSError: The kernel refuses.
        """
        self._folder.mkdir(mode=0o700, exist_ok=True)
        with self._hold_lock():
            project = self.of_job(job_uid, folders[0]) or self._take(job_uid, first)
            # Set the limit before any file counts against it.
            project_quotas.set_limit(self._jobs, project, size, files)
        for folder in folders:
            project_quotas.assign(folder, project)
        return ProjectLimit(self._jobs, project, size)

    def of_job(self, job_uid: str, folder: Path) -> int:
        """The project of a job's folder; 0 if it has none, or that of somebody else."""
        with contextlib.suppress(OSError):
            project = project_quotas.project_of(folder)
            if project and os.readlink(self._folder / str(project)) == job_uid:  # noqa: PTH115 - a name that is no path
                return project
        return 0

    def free(self, project: int) -> None:
        """Give back the project of a job that is gone; 0 is none."""
        if project:
            with contextlib.suppress(OSError), self._hold_lock():
                self._free(project)

    def free_unused(self) -> None:
        """Give back what a kill has kept from being given back. Looks at every job."""
        with contextlib.suppress(OSError), self._hold_lock():
            for project in self._list_taken():
                job_uid = os.readlink(self._folder / str(project))  # noqa: PTH115 - a name that is no path
                if not (self._jobs / job_uid).exists():
                    self._free(project)

    def _take(self, job_uid: str, first: int) -> int:
        taken = self._list_taken()
        for project in count(first):
            # One with files is somebody else's: a server with the same range, or the machine's.
            if project in taken or project_quotas.quota_of(self._jobs, project).files:
                continue
            (self._folder / str(project)).symlink_to(job_uid)
            return project
        raise AssertionError

    def _free(self, project: int) -> None:
        with contextlib.suppress(OSError):
            # Remove the limit first: the next job with this number must not inherit it.
            project_quotas.set_limit(self._jobs, project, 0)
        (self._folder / str(project)).unlink()

    def _list_taken(self) -> set[int]:
        names = os.listdir(self._folder)  # noqa: PTH208 - one for each job
        return {int(name) for name in names if name.isdigit()}

    @contextlib.contextmanager
    def _hold_lock(self) -> Iterator[None]:
        descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)
