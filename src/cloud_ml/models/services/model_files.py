"""The names by which models are known, in a folder of outputs, on this machine and on the server.

The model server has the same table (``serving/versions/single_model``): it is a product of its own
and imports nothing from here. A test compares them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath

MODEL_FILES = (
    "saved_model.pb",
    "export.meta",
    "model.keras",
    "model.tflite",
    "model.onnx",
    "model.pt2",
    "model.pt",
    "model.skops",
    "model.joblib",
    "model.pkl",
    "model.ubj",
    "model.json",
    "model.txt",
    "model.py",
)
"""What tells that a folder is a model, the first of several."""
MODEL_PARTS = ("saved_model.pb", "export.meta")
"""Of a model that is a folder: alone they are none."""
ENDINGS: Mapping[str, str] = {
    PurePath(name).suffix: name for name in MODEL_FILES if name not in MODEL_PARTS
} | {".pth": "model.pt", ".pickle": "model.pkl"}
"""The ending of a model that is one file, of any name → the name that stands for its format."""
TEXT_MODELS: Mapping[str, tuple[str, re.Pattern[bytes]]] = {
    ".json": ("XGBoost", re.compile(rb'\s{0,64}\{\s{0,64}"(learner|version)"\s{0,64}:')),
    ".txt": ("LightGBM", re.compile(rb"tree\r?\n")),
}
"""Endings of models that are text → who makes them, and how they begin: most files of these endings
are no models.
"""
BEGINNING_BYTES = 256
"""So much of a file tells whether it begins like one of them."""


def begins_as_model(name: str, beginning: bytes) -> bool:
    """Whether a text file of this name begins like a model. Of other files this tells nothing."""
    _, pattern = TEXT_MODELS.get(PurePath(name).suffix, ("", None))
    return pattern is not None and pattern.match(beginning) is not None


def named_for_its_format(name: str) -> str | None:
    """The name by which a model of one file is known, such as ``model.pt`` for ``net.pth``; None
    where its ending is that of no model.
    """
    known = name if name in MODEL_FILES else ENDINGS.get(PurePath(name).suffix)
    return None if known in MODEL_PARTS else known
