"""From a folder to a loaded model: which runtime knows what lies there."""

from collections.abc import Sequence
from pathlib import Path

from cloud_ml.serving.errors import ModelFailed
from cloud_ml.serving.output_alias import with_output_alias
from cloud_ml.serving.runtimes.base import LoadOptions, Model, Runtime
from cloud_ml.serving.runtimes.boosting import LightGBMRuntime, XGBoostRuntime
from cloud_ml.serving.runtimes.keras import KerasRuntime
from cloud_ml.serving.runtimes.onnx import OnnxRuntime
from cloud_ml.serving.runtimes.python import PythonRuntime
from cloud_ml.serving.runtimes.pytorch import ExportedProgramRuntime, TorchScriptRuntime
from cloud_ml.serving.runtimes.sklearn import PickledRuntime, SkopsRuntime
from cloud_ml.serving.runtimes.tensorflow import SavedModelRuntime
from cloud_ml.serving.runtimes.tensorflow.bundle import SessionBundleRuntime
from cloud_ml.serving.runtimes.tflite import TfliteRuntime

RUNTIMES: tuple[Runtime, ...] = (
    SavedModelRuntime(),
    SessionBundleRuntime(),
    KerasRuntime(),
    OnnxRuntime(),
    ExportedProgramRuntime(),
    TorchScriptRuntime(),
    SkopsRuntime(),
    PickledRuntime(),
    XGBoostRuntime(),
    LightGBMRuntime(),
    TfliteRuntime(),
    PythonRuntime(),
)
"""Asked in this order; a folder should hold one format."""


_TRITON = {
    "tensorflow": "tensorflow_savedmodel", "tensorflow-session-bundle": "tensorflow_savedmodel",
    "onnx": "onnxruntime_onnx", "torchscript": "pytorch_libtorch",
}  # fmt: skip


def platform_of(folder: Path, runtimes: Sequence[Runtime] = RUNTIMES) -> str:
    """The name of the format that lies in a folder, as Triton calls it where it knows it; empty
    for none.
    """
    name = next((runtime.name for runtime in runtimes if runtime.recognises(folder)), "")
    return _TRITON.get(name, name)


def load(folder: Path, options: LoadOptions, runtimes: Sequence[Runtime] = RUNTIMES) -> Model:
    """Load the version that lies in a folder.

    Raises:
        ModelFailed: where no runtime knows it, or the one that does cannot load it.
    """
    for runtime in runtimes:
        if runtime.recognises(folder):
            if runtime.runs_code and not options.allow_code:
                raise ModelFailed(
                    f"{runtime.name} models run code when they are loaded: see "
                    "--allow_models_that_run_code"
                )
            model = runtime.load(folder, options)
            model.signatures = {
                name: with_output_alias(each) for name, each in model.signatures.items()
            }
            return model
    known = ", ".join(runtime.name for runtime in runtimes)
    raise ModelFailed(f"{folder} holds no model that can be served; known formats: {known}")
