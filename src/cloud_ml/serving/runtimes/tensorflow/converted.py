"""SavedModels that onnxruntime serves: converted in a process of their own, kept by what they are made of."""

import hashlib
import importlib.util
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cloud_ml.serving.errors import ModelFailed
from cloud_ml.serving.runtimes.base import LoadOptions
from cloud_ml.serving.runtimes.onnx import OnnxModel
from cloud_ml.serving.runtimes.tensorflow import described

log = logging.getLogger(__name__)

_NEEDED = ("tensorflow", "tf2onnx", "onnxruntime")


def load(folder: Path, options: LoadOptions) -> tuple[OnnxModel | None, str]:
    """The model as onnxruntime serves it, or nothing; and why.

    Raises:
        ModelFailed: where the SavedModel itself is damaged.
    """
    signatures = described.signatures(folder)
    if missing := [name for name in _NEEDED[1:] if importlib.util.find_spec(name) is None]:
        return None, f"{', '.join(missing)} is not installed"
    kept = options.cache / digest(folder)
    result = _result(kept)
    if result is None:
        if importlib.util.find_spec("tensorflow") is None:
            return None, "tensorflow is not installed"
        result = _convert(folder, kept, options.convert_s)
    if not result["fit"]:
        return None, str(result["why"])
    try:
        return OnnxModel({name: kept / f"{name}.onnx" for name in signatures}, signatures, inner=False), str(
            result["why"]
        )
    except ModelFailed as error:
        shutil.rmtree(kept, ignore_errors=True)
        return None, f"the converted model is damaged: {error.message}"


def digest(folder: Path) -> str:
    """A name for what a SavedModel and the programs that convert it are."""
    made = hashlib.sha256()
    for name in _NEEDED[1:]:
        made.update(f"{name} {version(name)}\0".encode())
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        made.update(f"{file.relative_to(folder)}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as content:
            made.update(hashlib.file_digest(content, "sha256").digest())
    return made.hexdigest()


def _result(kept: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads((kept / "result.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found


def _convert(folder: Path, kept: Path, seconds: float) -> dict[str, Any]:
    """Run the program and keep what it made, whole or not at all. A failure is no reason not to serve."""
    kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".making-") as made:
        command = [sys.executable, "-m", "cloud_ml.serving.runtimes.tensorflow.convert", str(folder), made]
        try:
            done = subprocess.run(  # noqa: S603 - our own program
                command,
                timeout=seconds,
                capture_output=True,
                text=True,
                check=False,
                env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
            )
        except subprocess.TimeoutExpired:
            return {"fit": False, "why": f"converting took longer than {seconds:g} s"}
        result = _result(Path(made))
        if result is None:
            log.warning("converting %s failed:\n%s", folder, done.stderr[-4000:])
            return {"fit": False, "why": f"converting ended with {done.returncode}"}
        if not result["fit"]:
            for file in Path(made).glob("*.onnx"):
                file.unlink()
        if not kept.exists():
            shutil.copytree(made, kept)
        return result
