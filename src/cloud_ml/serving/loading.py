"""From a folder to a loaded model: which runtime knows what lies there."""

from collections.abc import Sequence
from pathlib import Path

from cloud_ml.serving.errors import ModelFailed
from cloud_ml.serving.runtimes.base import Model, Runtime
from cloud_ml.serving.runtimes.onnx import OnnxRuntime
from cloud_ml.serving.runtimes.savedmodel import SavedModelRuntime

RUNTIMES: tuple[Runtime, ...] = (SavedModelRuntime(), OnnxRuntime())


def load(folder: Path, runtimes: Sequence[Runtime] = RUNTIMES) -> Model:
    """Load the version that lies in a folder.

    Raises:
        ModelFailed: where no runtime knows it, or the one that does cannot load it.
    """
    for runtime in runtimes:
        if runtime.recognises(folder):
            return runtime.load(folder)
    known = ", ".join(runtime.name for runtime in runtimes)
    raise ModelFailed(f"{folder} holds no model that can be served; known formats: {known}")
