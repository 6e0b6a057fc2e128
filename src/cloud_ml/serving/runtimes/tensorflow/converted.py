"""SavedModels that onnxruntime serves: converted in a process of their own, kept by what they
are made of.
"""

import importlib.util
import shutil
from pathlib import Path

from cloud_ml.serving.errors import ModelFailed
from cloud_ml.serving.runtimes.base import LoadOptions
from cloud_ml.serving.runtimes.onnx import OnnxModel
from cloud_ml.serving.runtimes.tensorflow import children, described

_PROGRAM = "cloud_ml.serving.runtimes.tensorflow.convert"
_NEEDED = ("tensorflow", "tf2onnx", "onnxruntime")


def load(folder: Path, options: LoadOptions) -> tuple[OnnxModel | None, str]:
    """The model as onnxruntime serves it, or nothing; and why.

    Raises:
        ModelFailed: where the SavedModel itself is damaged.
    """
    signatures = described.signatures(folder)
    if missing := [name for name in _NEEDED[1:] if importlib.util.find_spec(name) is None]:
        return None, f"{', '.join(missing)} is not installed"
    kept = options.cache / children.digest(folder, _NEEDED[1:])
    result = children.result(kept)
    if result is None:
        if importlib.util.find_spec("tensorflow") is None:
            return None, "tensorflow is not installed"
        result = children.run(_PROGRAM, folder, kept, options.convert_s)
    if not result["fit"]:
        return None, str(result["why"])
    try:
        return OnnxModel(
            {name: kept / f"{name}.onnx" for name in signatures}, signatures, inner=False
        ), str(result["why"])
    except ModelFailed as error:
        shutil.rmtree(kept, ignore_errors=True)
        return None, f"the converted model is damaged: {error.message}"
