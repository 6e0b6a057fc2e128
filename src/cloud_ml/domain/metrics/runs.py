"""What series of event files are called: as TensorBoard names them, by the folder of the file and the
tag.

TensorBoard calls a folder with event files a run, and names it by its path. Here a job is one run,
so parts of the path that tell one start of a program from another are left out, and those that are
there by convention: ``logs/20261125-101010/train`` with the tag ``loss`` is ``train/loss``. So an
attempt that logs to a new folder goes on with the same series.
"""

from __future__ import annotations

import re

_PLACES = frozenset(
    {
        "code", "fit", "lightning_logs", "log", "logs", "runs", "summaries", "tasks", "tb",
        "tb_logs", "tensorboard", "tensorboard_logs",
    }
)  # fmt: skip
_STARTS = re.compile(
    r"version_\d{1,9}"  # Lightning
    r"|[A-Z][a-z]{2}\d{2}_\d{2}-\d{2}-\d{2}_.*"  # PyTorch: Nov25_10-10-10_host
    r"|\d{8}[-_T]?\d{0,6}"  # TensorFlow's guides: 20261125-101010
    r"|\d{4}-\d{2}-\d{2}([-_T ]\d{2}[-:_.]?\d{2}([-:_.]?\d{2})?)?"
    r"|\d{10,20}(\.\d{1,9})?"
)


def run_of(below: str) -> str:
    """The run of an event file at this path below a folder; empty for the job itself."""
    parts = below.split("/")[:-1]
    kept = [part for part in parts if not (part.lower() in _PLACES or _STARTS.fullmatch(part))]
    return "/".join(kept)


def name_order(path: str) -> tuple[str, str]:
    """Event files in the order in which programs have begun them: their names have the time."""
    return path.rpartition("/")[2], path
