"""Working directories of jobs as plain folders, for tests of what becomes of the files in them."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path

from cloud_ml.engines.abilities import WorkingDirectory
from cloud_ml.engines.local.files import job_files, working_directory


class Folders:
    """An engine's working directories: ``<root>/<uid>/work/code``, empty when their jobs began."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def of(self, uid: str) -> Path:
        """The folder of a job, made if need be."""
        return make(self.root / uid)

    def working_directory(
        self, job_uid: str, tenant: int
    ) -> AbstractContextManager[WorkingDirectory | None]:
        """See ``engines.abilities.WorkingDirectories``."""
        return job_files.open_working_directory(self.root / job_uid, os.geteuid())


def make(job: Path, sent: Path | None = None) -> Path:
    """The working directory of a job with this folder, with a copy of what was sent."""
    (job / "work").mkdir(parents=True, exist_ok=True)
    working_directory.make_once(sent, job, user=None, room=working_directory.CopyLimits())
    return job / "work" / working_directory.CODE


def write(folder: Path, **sizes: int) -> None:
    """Files of so many bytes; ``a__b`` stands for ``a/b``, ``_dot_`` for a dot."""
    for name, size in sizes.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(size))
