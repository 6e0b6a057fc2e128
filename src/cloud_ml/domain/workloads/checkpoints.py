"""Where the checkpoints of a job lie, and what is noted about them. Pure.

``cloud_ml.job`` writes the notes, in the job; TensorFlow writes a note of its own. For jobs that do
neither, the engine notes what they rename into the folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

FOLDER = ".checkpoints"
"""The folder of all jobs' checkpoints in a bucket."""
SAVED, RENAMED, TENSORFLOW = ".saved.jsonl", ".renamed.jsonl", "checkpoint"
"""Names of the notes in the folder of a job: its own, the engine's, and TensorFlow's."""
READ_BYTES = 1 << 18
"""So much of the end of a note is read."""
_LONGEST_LINE = 4096
_MOST_STEPS = 10**18
_TENSORFLOW_PATH = re.compile(rb'^model_checkpoint_path: "([^"\n]{1,1000})"', re.MULTILINE)
_STEP = re.compile(r"-([0-9]{1,18})$")
_STEP_OF_FILE = re.compile(r"(?:^|[-_=])([0-9]{1,18})(?:\.[A-Za-z]\w*)*$")
_TEMPORARY = re.compile(
    r"^\.|~$|tmp"
    r"|(?<![a-z])(?:temp|temporary|part|partial|incomplete|saving|staging|writing|new)(?![a-z])",
    re.IGNORECASE,
)
_PART_OF_TENSORFLOWS = re.compile(r"^checkpoint$|\.(?:index|meta|pbtxt|data-\d{5}-of-\d{5})$")


@dataclass(frozen=True)
class NotedCheckpoint:
    """A checkpoint that is said to be complete. ``path`` is relative to the job's folder.

    ``attempt`` has saved it; ``None`` where its note does not say so.
    """

    path: str
    step: int | None
    at: datetime
    attempt: int | None = None


def folder_of(name: str, uid: str) -> str:
    """The folder of a job's checkpoints in its bucket. Names are used again, uids are not."""
    return f"{FOLDER}/{name}-{uid}"


def bucket_of(own: str | None, default: str, buckets: Collection[str]) -> str:
    """The bucket of a job's checkpoints among those of its organisation: its own, else the default
    one; empty if there is neither.
    """
    if own is not None and own in buckets:
        return own
    return default if default in buckets else ""


def split_key(key: str) -> tuple[str, str]:
    """The uid of the job whose checkpoints an object is among, and its path in their folder; the
    uid is empty for any other object.
    """
    top, _, rest = key.partition("/")
    folder, _, path = rest.partition("/")
    return (folder.rpartition("-")[2], path.strip("/")) if top == FOLDER else ("", "")


def split_folder(key: str) -> tuple[str, str]:
    """The folder with notes that an object is in, and its path there: that of a job, or any other."""
    top, _, rest = key.partition("/")
    if top == FOLDER:
        job, _, path = rest.partition("/")
        return f"{FOLDER}/{job}", path.strip("/")
    folder, _, name = key.rstrip("/").rpartition("/")
    return folder, name


def is_referred(path: str, referred: Iterable[str]) -> bool:
    """Whether one of the paths ``referred`` is that of a checkpoint, or of a part of it, or of a
    folder with it.
    """
    return any(_is_part(one, path) or _is_part(path, one) for one in referred)


def _is_part(path: str, whole: str) -> bool:
    """Whether a path is another one, or below it, or that of one of its files as TensorFlow names
    them.
    """
    return not whole or path == whole or path.startswith((f"{whole}/", f"{whole}."))


def without(
    noted: Iterable[NotedCheckpoint], dropped: Collection[NotedCheckpoint]
) -> Iterable[NotedCheckpoint]:
    """Those that are not about to be removed. One that was saved again since is another one."""
    since = {one.path: one.at for one in dropped}
    return (one for one in noted if one.path not in since or one.at > since[one.path])


def parse_saved(note: bytes) -> list[NotedCheckpoint]:
    """What the end of ``SAVED`` or ``RENAMED`` says; the oldest first. Lines that say nothing are
    left out: a task may have been killed while it wrote one.
    """
    lines = (line for line in note.splitlines() if len(line) <= _LONGEST_LINE)
    return [one for line in lines if (one := _entry(line)) is not None]


def believed(
    saved: bytes, by_tensorflow: NotedCheckpoint | None, renamed: bytes
) -> list[NotedCheckpoint]:
    """What the ends of ``SAVED`` and ``RENAMED``, and TensorFlow's note, say about checkpoints that
    are complete; the newest first.

    What was renamed is believed only of code that reports nothing: other code may rename more than
    its checkpoints.
    """
    found = parse_saved(saved)
    if by_tensorflow is not None:
        found.append(by_tensorflow)
    found = found or parse_saved(renamed)
    # Of those with the same time, the last one is the newest: a sort keeps the order of equals.
    return sorted(found, key=lambda one: one.at)[::-1]


def is_finished(source: str, name: str) -> bool:
    """Whether a rename in the folder of checkpoints says that one is complete.

    Args:
        source: The former name; empty if it came from another folder.
        name: The new name.

    It was written under a temporary name, such as ``step-5.pt.tmp``, or in another folder. A rename
    from any other name says nothing: old checkpoints also get another name before they are removed.
    """
    if not _is_below(name) or _TEMPORARY.search(name) or _PART_OF_TENSORFLOWS.search(name):
        return False
    return not source or bool(_TEMPORARY.search(source))


def line_of_rename(name: str, at: float, attempt: int) -> bytes:
    """What the engine adds to ``RENAMED`` for a checkpoint that was renamed ``at``, in seconds since
    the epoch.
    """
    found = _STEP_OF_FILE.search(name)
    step = int(found[1]) if found else None
    entry = {"path": name, "step": step, "time": at, "attempt": attempt}
    # A line feed first: a supervisor that was killed may have left half a line.
    return f"\n{json.dumps(entry)}\n".encode()


def by_tensorflow(note: bytes, at: datetime) -> NotedCheckpoint | None:
    """What TensorFlow's own note says; it was written ``at``."""
    if (found := _TENSORFLOW_PATH.search(note)) is None:
        return None
    # TensorFlow notes an absolute path where it was given one; files lie beside the note
    path = found[1].decode("utf-8", "replace").rpartition("/")[2]
    return NotedCheckpoint(path, step_of(path), at) if _is_below(path) else None


def step_of(path: str) -> int | None:
    """The step in a name such as ``model.ckpt-900``."""
    found = _STEP.search(path)
    return int(found[1]) if found else None


def _entry(line: bytes) -> NotedCheckpoint | None:
    try:
        entry = json.loads(line)
        path, step, at = entry["path"], entry["step"], entry["time"]
        moment = datetime.fromtimestamp(at, UTC)
    except (ValueError, KeyError, TypeError, OverflowError, OSError, RecursionError):
        return None
    known = step is None or _is_whole(step, least=0)
    if not isinstance(path, str) or not _is_below(path) or not known:
        return None
    attempt = entry.get("attempt")  # older versions of cloud_ml.job do not note it
    return NotedCheckpoint(path, step, moment, attempt if _is_whole(attempt, least=1) else None)


def _is_whole(value: Any, *, least: int) -> bool:
    # Not isinstance, because True and False are ints.
    return type(value) is int and least <= value < _MOST_STEPS


def _is_below(path: str) -> bool:
    """Whether a path is text, and stays in the folder."""
    parts = path.split("/")
    is_text = not any("\ud800" <= one <= "\udfff" for one in path) and "\x00" not in path
    return bool(path) and is_text and not {"", ".", ".."} & set(parts)
