"""The notice that a task finds when it is told to stop: why, and until when.

It lies in the task's own ``/tmp``, so the task can put anything in its place. No link is followed
here: this process may have more rights than the job.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

from cloud_ml.engines.local.files.made_folders import open_folder

NAME = ".cloudml_notice"
VARIABLE = "CLOUDML_NOTICE"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write(folder: Path, below: Sequence[str], reason: str, grace_s: float) -> bool:
    """Leave the notice in the folder ``below`` ``folder``; whether that was possible.

    It appears whole or not at all. A task that has put a folder in its place, or has filled its
    disk, gets none.

    Args:
        folder: One that the platform has made.
        below: Names of folders in it, where the job can write.
        reason: Why the task is to stop.
        grace_s: Seconds until it is killed.
    """
    content = json.dumps({"reason": reason, "deadline": time.time() + grace_s}).encode()
    # Use a name that the job cannot guess, so that it cannot put something in its place.
    draft = f"{NAME}-{os.urandom(8).hex()}"
    with contextlib.ExitStack() as stack:
        try:
            parent = _parent(stack, folder, below)
            file = os.open(draft, _NEW_FILE, 0o644, dir_fd=parent)
        except OSError:
            return False
        try:
            with os.fdopen(file, "wb") as target:
                os.fchmod(target.fileno(), 0o644)  # whatever this process's umask is
                target.write(content)
            os.rename(draft, NAME, src_dir_fd=parent, dst_dir_fd=parent)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(draft, dir_fd=parent)
            return False
    return True


def remove(folder: Path, below: Sequence[str]) -> None:
    """Remove the notice of a task that starts again, if there is one."""
    with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
        os.unlink(NAME, dir_fd=_parent(stack, folder, below))


def _parent(stack: contextlib.ExitStack, folder: Path, below: Sequence[str]) -> int:
    """The folder ``below`` ``folder``, open as long as ``stack`` is."""
    parent = stack.enter_context(open_folder(folder))
    for name in below:
        parent = os.open(name, _FOLDER, dir_fd=parent)
        stack.callback(os.close, parent)
    return parent
