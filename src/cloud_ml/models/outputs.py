"""The outputs of a job, as the modern surface answers them, and which of them look like models."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath

_ENDINGS = (
    ".onnx",
    ".keras",
    ".tflite",
    ".pt2",
    ".pt",
    ".pth",
    ".skops",
    ".joblib",
    ".pkl",
    ".pickle",
    ".ubj",
)
_NAMES = {"model.json", "model.txt"}
"""Models of boosting libraries: their endings alone say nothing."""
_FOLDERS = {"saved_model.pb", "export.meta"}
"""Files that make their folder a model."""


@dataclass(frozen=True, kw_only=True)
class JobOutputs:
    """What a job left: ``files`` files of ``bytes`` bytes in all in the folder ``uri``.

    ``not_kept`` counts files that were not stored; an event of the job names them.
    """

    uri: str
    files: int = 0
    bytes: int = 0
    not_kept: int = 0


@dataclass(frozen=True, kw_only=True)
class OutputFile:
    """A file that a job left. ``path`` is relative to the job's working directory, ``uri`` where it
    is stored.

    ``model`` is the path of what to deploy if this file is a model, or makes its folder one;
    otherwise empty.
    """

    path: str
    uri: str
    size: int
    modified: datetime
    etag: str = ""
    model: str = ""


@dataclass(frozen=True, kw_only=True)
class OutputPage:
    """Files in byte order of their paths; ``next`` goes into ``after`` of the next request and is
    null at the end.

    ``uri`` is the folder of all; empty where the job has none.
    """

    uri: str
    items: list[OutputFile]
    next: str | None = None


def model_at(path: str) -> str:
    """What to deploy if the file at ``path`` looks like a model: the file, or its folder; empty
    if it does not.
    """
    file = PurePosixPath(path)
    if file.name in _FOLDERS:
        return _above_version(file.parent)
    return path if file.suffix in _ENDINGS or file.name in _NAMES else ""


def models_of(files: Iterable[OutputFile]) -> list[str]:
    """The models among outputs, each once."""
    return list(dict.fromkeys(file.model for file in files if file.model))


def _above_version(folder: PurePosixPath) -> str:
    """The folder of versions, where the model's own folder is named by its number."""
    shown = folder.parent if folder.name.isascii() and folder.name.isdigit() else folder
    return "" if str(shown) == "." else str(shown)
