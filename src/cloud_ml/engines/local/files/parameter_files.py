"""The file with the parameters of a job, in the job's home directory.

It is written anew for each attempt. All of that folder is the job's to change: no link is followed,
and what has the name of the file is removed first.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from cloud_ml.engines.gang import ProcessPlan
from cloud_ml.engines.local.files.made_folders import open_folder
from cloud_ml.models.parameter_file import VARIABLE, decode_parameters

NAME = ".cloudml_parameters.json"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def text_of(plan: ProcessPlan) -> str | None:
    """What the file of a process has to say; ``None`` if there is none. A variable that is no JSON
    object is the user's own.
    """
    text = plan.environment.get(VARIABLE, "")
    return None if decode_parameters(text) is None else text


def path_in(home: str) -> str:
    """Where processes see the file, by the home directory that they see."""
    return f"{home}/{NAME}"


def variables(home: str, plan: ProcessPlan) -> dict[str, str]:
    """The variable with the path, for a process that has parameters."""
    return {} if text_of(plan) is None else {VARIABLE: path_in(home)}


def write(home: Path, plan: ProcessPlan, user: tuple[int, int] | None) -> None:
    """Write the file of a job, for the ``user`` (uid, gid) of the job, if it has parameters.

    Raises:
        OSError: The disk is full, or the job has made a folder of this name.
    """
    text = text_of(plan)
    if text is None:
        return
    with open_folder(home) as folder:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(NAME, dir_fd=folder)
        with os.fdopen(os.open(NAME, _NEW, 0o600, dir_fd=folder), "w", encoding="utf-8") as file:
            if user is not None:
                os.fchown(file.fileno(), *user)
            file.write(text)
