"""The outputs of a job, as the modern surface answers them, and which of them look like models."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath

from cloud_ml.models.services.model_files import MODEL_PARTS, TEXT_MODELS, named_for_its_format

_SAYS_NOTHING = (".py", *TEXT_MODELS)
"""Endings of many files that are no models: only ``model.json`` and ``model.txt`` are taken for
some.
"""
_STATE_OF_TRAINING = re.compile(
    r"(optim(izer)?|lr_?scheduler|scheduler|grad_?scaler|rng_?states?|random_states?|training_args)([_.-]?\d+)*"
    r"\.(pt|pth|pkl|pickle)"
)
"""What trainers of Hugging Face, Accelerate and others keep beside a model to go on from there."""


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
    if file.name in MODEL_PARTS:
        return _above_version(file.parent)
    if file.suffix in _SAYS_NOTHING:
        return path if file.name in ("model.json", "model.txt") else ""
    if _STATE_OF_TRAINING.fullmatch(file.name.lower()):
        return ""
    return path if named_for_its_format(file.name) else ""


def models_of(files: Iterable[OutputFile]) -> list[str]:
    """The models among outputs, each once."""
    return list(dict.fromkeys(file.model for file in files if file.model))


def _above_version(folder: PurePosixPath) -> str:
    """The folder of versions, where the model's own folder is named by its number."""
    shown = folder.parent if folder.name.isascii() and folder.name.isdigit() else folder
    return "" if str(shown) == "." else str(shown)
