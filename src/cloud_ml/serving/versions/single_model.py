"""A model that lies in no numbered folder: one file, or a folder that holds a model itself. It
is version 1.
"""

import atexit
import os
import shutil
import tempfile
from collections.abc import Collection
from pathlib import Path

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
"""What tells that a folder is a model."""
ENDINGS = {
    Path(name).suffix: name for name in MODEL_FILES if name not in ("saved_model.pb", "export.meta")
} | {".pth": "model.pt", ".pickle": "model.pkl"}


def holds_model(names: Collection[str]) -> bool:
    """Whether a folder with files of these names is a model."""
    return not {*MODEL_FILES}.isdisjoint(names)


def base_of(path: Path) -> Path:
    """The base path of a model: a new folder with links where ``path`` is one file, else the path
    itself.

    The file is linked under the name by which its format is known, with its signature and the
    weights of ONNX that lie beside it. What is neither a file nor a folder yet is returned as it
    is. The folder of links is removed when this process ends.
    """
    name = path.name if path.name in MODEL_FILES else ENDINGS.get(path.suffix)
    if name is None or not path.is_file():
        return path
    folder = Path(tempfile.mkdtemp(prefix="cloudml-model-"))
    atexit.register(_remove_links, folder, os.getpid())
    (folder / name).symlink_to(path)
    for beside in ("signature.json", f"{path.name}.data", f"{path.name}_data"):
        if path.with_name(beside).is_file():
            (folder / beside).symlink_to(path.with_name(beside))
    return folder


def _remove_links(folder: Path, owner: int) -> None:
    # A forked child inherits what is registered here, and its end says nothing about the server's.
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
