"""The folders of an attempt, on this machine and as its processes see them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cloud_ml.domain.observed import UnsavedFiles
from cloud_ml.engines.local.config import LocalConfig
from cloud_ml.engines.local.disk.project_ids import ProjectLimit
from cloud_ml.engines.local.files import metric_files, parameter_files, working_directory
from cloud_ml.engines.local.files.unsaved_files import find_unsaved_files
from cloud_ml.engines.local.files.working_directory import CannotCopy, CopyLimits
from cloud_ml.engines.local.isolation import sandbox
from cloud_ml.engines.local.ledger import TEMPORARY_FOLDER, Ledger
from cloud_ml.engines.local.processes.launch import Fence
from cloud_ml.engines.local.resolved_gang import ResolvedGang
from cloud_ml.environments.base import EnvironmentFailed
from cloud_ml.environments.removing import remove

_VENV = "venv"
_SMALL_PART = 16
"""A copy of what was sent may take this part of a disk that is nearly full: a job that writes to
buckets still runs.
"""
HOSTS = "hosts"
"""The table of names of a gang, in the folder of an attempt."""
WRITABLE = (TEMPORARY_FOLDER, _VENV)
"""Folders of an attempt that its code may write to; beside them there is the working folder of
the job.
"""
_NOT_OUTPUTS = frozenset(
    name.encode() for name in (working_directory.CODE, metric_files.FOLDER, parameter_files.NAME)
)


class AttemptFolders:
    """The folders of an attempt, which belong to the tenant's user where jobs have one.

    Attributes:
        attempt: What belongs to the attempt alone.
        work: The home directory of the job, which all its attempts share.
        tmp: The temporary folder.
        venv: The virtual environment.
    """

    def __init__(
        self, gang: ResolvedGang, config: LocalConfig, ledger: Ledger, fence: Fence
    ) -> None:
        self._gang = gang
        self._config = config
        self._ledger = ledger
        self._fence = fence
        self.attempt = ledger.attempt_folder(gang.key)
        self.work = ledger.work_folder(gang.key.job_uid)
        self.tmp = self.attempt / TEMPORARY_FOLDER
        self.venv = self.attempt / _VENV

    @property
    def has_code(self) -> bool:
        """Whether the job runs in a copy of what was sent. What serves listens on sockets in its
        home directory.
        """
        return self._gang.environment.trainer is not None and not self._gang.serves

    @property
    def working_directory(self) -> Path:
        """The working directory on this machine."""
        return self.work / working_directory.CODE if self.has_code else self.work

    @property
    def seen_working_directory(self) -> str:
        """The working directory as the job sees it."""
        if not self._fence.bwrap:
            return str(self.working_directory)
        return sandbox.CODE if self.has_code else sandbox.WORK

    def bind_to_limit(self) -> ProjectLimit | None:
        """Have the kernel keep the disk limit, where it can. The rest, such as the environment, is
        only measured.

        Raises:
            OSError: The kernel does not take it.
        """
        size = self._disk_bytes
        if not self._config.project_id_base or not size:
            return None
        return self._ledger.projects.bind(
            self._gang.key.job_uid,
            [self.work, self.tmp],
            first=self._config.project_id_base,
            size=size,
            files=self._config.max_files,
        )

    def make(self) -> None:
        """Make the folders of the job and of the attempt, with the files that its code finds."""
        for folder in (self.work, self._ledger.log_folder(self._gang.key)):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for folder in (self.work.parent, self.attempt):
            # The users of jobs pass through to their own folders and cannot list these.
            folder.chmod(0o711)
        self.own(self.work)
        metric_files.make(self.work, self._fence.user)
        parameter_files.write(self.work, self._gang.first, self._fence.user)

    def make_tmp(self, folder: Path) -> None:
        """Make an empty temporary folder."""
        folder.mkdir(mode=0o700)
        self.own(folder)

    def make_working_directory(self, sent: str) -> None:
        """Copy what was sent, unless an attempt before has done so.

        Raises:
            EnvironmentFailed: It takes more than the job may have, or than the disk can give.
        """
        config, limit = self._config, self._disk_bytes
        facts = os.statvfs(self.work)
        spare = facts.f_bavail * facts.f_frsize
        # A small copy may use the disk reserve.
        free = max(spare - config.disk_reserve_bytes, spare // _SMALL_PART)
        room = CopyLimits(min(free, limit) if limit else free, config.max_files or None)
        job = self._ledger.job_folder(self._gang.key.job_uid)
        try:
            working_directory.make_once(
                Path(sent) if sent else None, job, user=self._fence.user, room=room
            )
        except CannotCopy as error:
            raise EnvironmentFailed(error.reason, error.message) from error

    def forget_early_attempts(self) -> None:
        """What serves starts again without end: drop the output of the attempt that is one too
        many.
        """
        key = self._gang.key
        if self._gang.serves and (earlier := key.attempt - self._config.kept_attempts) > 0:
            remove(self._ledger.attempt_folder(replace(key, attempt=earlier)))

    def link_mounts(self) -> None:
        """Without a mount table of its own, the job reaches its buckets through links."""
        for folder in self._gang.folders:
            target = Path(folder.target)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            target.symlink_to(folder.source)

    def find_unsaved_files(self, names: Sequence[str]) -> UnsavedFiles:
        """What the job, which has ended, wrote outside its working directory. ``names`` are those
        of tasks that have folders of their own.
        """
        if not self.has_code:  # its home directory is its working directory, or it serves
            return UnsavedFiles()
        inside = bool(self._fence.bwrap)
        tmp = "/tmp" if inside else "$TMPDIR"  # noqa: S108
        folders = [(self.tmp / name, f"{name}:{tmp}") for name in names] or [(self.tmp, tmp)]
        folders.append((self.work, "~"))
        return find_unsaved_files(folders, skipped=_NOT_OUTPUTS)

    def own(self, folder: Path) -> None:
        """Give a folder to the tenant's user."""
        if self._fence.user is not None:
            os.chown(folder, *self._fence.user)

    def own_tree(self, folder: Path) -> None:
        """Give a folder to the tenant's user, with all that is in it."""
        if self._fence.user is not None:
            for parent, _, files in os.walk(folder):
                for name in (".", *files):
                    # A link may lead to a file that is not the tenant's.
                    os.chown(Path(parent) / name, *self._fence.user, follow_symlinks=False)

    @property
    def _disk_bytes(self) -> int | None:
        return self._gang.disk_bytes or self._config.default_disk_bytes
