"""The newest complete checkpoint in a folder that the job writes: what a task goes on from that
starts again while the others run on.

Everything in the folder is the job's word. So no link is followed, only so many notes are believed
to be worth a look, and no folder is read through.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from cloud_ml.domain.workloads.checkpoints import NotedCheckpoint
from cloud_ml.engines.local.files.made_folders import open_folder
from cloud_ml.engines.local.files.task_reports import noted_checkpoints

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_NOTED = 300


def newest(folder: Path, names: Sequence[str]) -> NotedCheckpoint | None:
    """The checkpoint below the folder ``names`` in ``folder``; its path is relative to the former.
    ``None`` if there is none.

    ``folder`` is the platform's, ``names`` lead through folders of the job.
    """
    noted = noted_checkpoints(folder, names)
    if not noted:  # as most jobs
        return None
    with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
        place = _open_below(stack.enter_context(open_folder(folder)), names, stack)
        return next((one for one in noted[:_MOST_NOTED] if _is_there(place, one.path)), None)
    return None  # the job has put something else there


def _is_there(folder: int, path: str) -> bool:
    """Whether there is such a file, such a folder with something in it, or TensorFlow's index of
    files whose names begin so.
    """
    *between, last = path.split("/")
    with contextlib.ExitStack() as stack, contextlib.suppress(OSError, ValueError):
        parent = _open_below(folder, between, stack)
        try:
            mode = os.stat(last, dir_fd=parent, follow_symlinks=False).st_mode
        except FileNotFoundError:
            index = os.stat(f"{last}.index", dir_fd=parent, follow_symlinks=False)
            return stat.S_ISREG(index.st_mode)
        if stat.S_ISDIR(mode):
            with os.scandir(_open_below(parent, [last], stack)) as entries:
                return next(entries, None) is not None
        return stat.S_ISREG(mode)
    return False


def _open_below(folder: int, names: Sequence[str], stack: contextlib.ExitStack) -> int:
    """The folder at ``names`` below a folder, open until the stack is left."""
    for name in names:
        folder = os.open(name, _FOLDER, dir_fd=folder)
        stack.callback(os.close, folder)
    return folder
