"""Files that people take for a model that can be served: what each is, and how to export one."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from pathlib import PurePath

SERVED_KINDS = (
    "Models that are served: TensorFlow (a folder with saved_model.pb or export.meta), Keras "
    "(.keras), TensorFlow Lite (.tflite), ONNX (.onnx), PyTorch (.pt2, .pt, .pth), scikit-learn "
    "(.skops, .joblib, .pkl, .pickle), XGBoost (.ubj, .json), LightGBM (.txt), and Python code "
    "(model.py with signature.json)."
)

_TORCH_EXPORT = "torch.export.save(torch.export.export(model.eval(), (example,)), 'model.pt2')"
_WEIGHTS = f"it holds only weights: load them into your model and export that with {_TORCH_EXPORT}"
_HDF5 = (
    "it is Keras's older HDF5 format: load it with keras.models.load_model and save it with {save}"
)
_KERAS_SAVE = "model.save('model.keras')"
_ADVICE = (
    (
        ".weights.h5",
        "it holds only weights: load them with model.load_weights and save the model with "
        f"{_KERAS_SAVE}",
    ),
    (".h5", _HDF5.format(save=_KERAS_SAVE)),
    (".hdf5", _HDF5.format(save=_KERAS_SAVE)),
    (".safetensors", _WEIGHTS),
    (".bin", _WEIGHTS),
    (".ckpt", _WEIGHTS),
    (
        "saved_model.pb",
        "deploy the folder that holds it: the weights of the model are beside this file",
    ),
    (
        ".pb",
        "it is a graph without its weights or signature: export a SavedModel and deploy its folder",
    ),
    (".npz", "it holds arrays and no model: deploy a folder with model.py, which loads them"),
    (".npy", "it holds an array and no model: deploy a folder with model.py, which loads it"),
)
"""How a name ends, and the way to a model that can be served; the first that fits counts."""


def export_advice(path: PurePath) -> str:
    """What a file of this name is and what to do; empty where its name does not say."""
    name = path.name.lower()
    return next((advice for ending, advice in _ADVICE if name.endswith(ending)), "")


_BINARY: Mapping[str, str] = {
    ".pb": "TensorFlow",
    ".keras": "Keras",
    ".tflite": "TensorFlow Lite",
    ".onnx": "ONNX",
    ".pt2": "PyTorch",
    ".pt": "PyTorch",
    ".pth": "PyTorch",
    ".skops": "scikit-learn",
}
"""Endings of models that are never text → who makes them. A pickle may be text, so none is here."""
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]")
"""Bytes that are in no text."""
_TEXTS = (
    (b"version https://git-lfs", "It is a Git LFS pointer: run `git lfs pull` first."),
    (b"<!doctype html", "It is an HTML page: the download that wrote it failed."),
    (b"<html", "It is an HTML page: the download that wrote it failed."),
)
"""How a text begins that often lies in the place of a model, and what it is."""


def wrong_content(path: PurePath, beginning: bytes) -> tuple[str, str] | None:
    """Who makes models of this ending and what the file is instead; ``None`` for a file that may
    be one. ``beginning`` are its first bytes.
    """
    maker = _BINARY.get(path.suffix)
    if maker is None or not is_text(beginning):
        return None
    if not beginning:
        return maker, "It is empty."
    lower = beginning[:200].lstrip().lower()
    return maker, next((what for start, what in _TEXTS if lower.startswith(start)), "It is text.")


def is_text(beginning: bytes) -> bool:
    """Whether these first bytes of a file are text in UTF-8. The last character may be cut off."""
    if _CONTROL.search(beginning):
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(beginning, final=False)
    except UnicodeDecodeError:
        return False
    return True
