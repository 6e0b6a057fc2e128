"""What tasks report, and the checkpoints that they note: ends of files that jobs write.

No link is followed, no pipe is waited for, and no more than the end of a file is read: this process
may have more rights than the job.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from cloud_ml.domain.workloads import checkpoints, progress
from cloud_ml.domain.workloads.checkpoints import NotedCheckpoint
from cloud_ml.domain.workloads.progress import Progress
from cloud_ml.engines.local.files.made_folders import open_folder

NAME = ".cloudml_progress"
"""In the task's own ``/tmp``."""
VARIABLE = "CLOUDML_PROGRESS"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Version = tuple[int, int, int]
"""Another one means that the file was written meanwhile."""


def version(folder: Path, below: Sequence[str]) -> Version | None:
    """The version of the reports in the folder ``below`` ``folder``; ``None`` if there are none."""
    with _opened_folder(folder, below) as parent:
        if parent is None:
            return None
        with _opened_file(parent, NAME) as file:
            if file is None:
                return None
            facts = os.fstat(file)
            return facts.st_ino, facts.st_size, facts.st_mtime_ns


def read(folder: Path, below: Sequence[str]) -> Progress | None:
    """What a task has reported."""
    return progress.read_reports(_end_of(folder, below, NAME, progress.READ_BYTES)[0])


def of_tasks(folder: Path, names: Sequence[str]) -> dict[str, Progress]:
    """What tasks have reported, by their names.

    Args:
        folder: The ``/tmp`` of an attempt. Those of several tasks lie in it, under their names.
        names: The tasks.
    """
    found = {}
    for name in names:
        task_progress = read(folder, [name])
        if task_progress is None and len(names) == 1:
            task_progress = read(folder, [])
        if task_progress is not None:
            found[name] = task_progress
    return found


def noted_checkpoints(folder: Path, below: Sequence[str]) -> list[NotedCheckpoint]:
    """The checkpoints that are noted in the folder for them; the newest first."""
    most = checkpoints.READ_BYTES
    with _opened_folder(folder, below) as parent:
        if parent is None:
            return []
        saved, _ = _end_of_file(parent, checkpoints.SAVED, most)
        renamed, _ = _end_of_file(parent, checkpoints.RENAMED, most)
        of_tensorflow, at = _end_of_file(parent, checkpoints.TENSORFLOW, most)
    return checkpoints.believed(saved, checkpoints.by_tensorflow(of_tensorflow, at), renamed)


def _end_of(folder: Path, below: Sequence[str], name: str, most: int) -> tuple[bytes, datetime]:
    """The end of a file, and when it was written; empty if it is none."""
    with _opened_folder(folder, below) as parent:
        if parent is None:
            return b"", datetime.now(UTC)
        return _end_of_file(parent, name, most)


def _end_of_file(parent: int, name: str, most: int) -> tuple[bytes, datetime]:
    with _opened_file(parent, name) as file:
        if file is not None:
            facts = os.fstat(file)
            with contextlib.suppress(OSError):
                return (
                    os.pread(file, most, max(0, facts.st_size - most)),
                    datetime.fromtimestamp(facts.st_mtime, UTC),
                )
    return b"", datetime.now(UTC)


@contextlib.contextmanager
def _opened_folder(folder: Path, below: Sequence[str]) -> Iterator[int | None]:
    """A folder of a job; ``None`` if there is none."""
    with contextlib.ExitStack() as stack:
        try:
            parent = stack.enter_context(open_folder(folder))
            for each in below:
                parent = os.open(each, _FOLDER, dir_fd=parent)
                stack.callback(os.close, parent)
        except OSError:
            yield None
            return
        yield parent


@contextlib.contextmanager
def _opened_file(parent: int, name: str) -> Iterator[int | None]:
    """A plain file of a job; ``None`` if there is none."""
    try:
        file = os.open(name, _FILE, dir_fd=parent)
    except OSError:
        yield None
        return
    try:
        yield file if stat.S_ISREG(os.fstat(file).st_mode) else None
    finally:
        os.close(file)
