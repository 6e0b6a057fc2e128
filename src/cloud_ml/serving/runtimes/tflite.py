"""TensorFlow Lite's flat buffers, by LiteRT."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cloud_ml.serving import dtypes
from cloud_ml.serving.errors import ModelFailed
from cloud_ml.serving.independence import tflite_graph
from cloud_ml.serving.independence.evidence import proven
from cloud_ml.serving.runtimes.base import DEFAULT_SIGNATURE, Array, LoadOptions
from cloud_ml.serving.runtimes.imports import import_framework
from cloud_ml.serving.signatures import Signature, TensorSpec


class TfliteModel:
    """An interpreter, whose tensors are made anew when a request has another shape than the
    last.
    """

    def __init__(self, interpreter: Any) -> None:
        self._interpreter = interpreter
        self._given = interpreter.get_input_details()
        self._made = interpreter.get_output_details()
        self._shapes: list[tuple[int, ...]] = []
        sides = [tuple(_spec(each) for each in side) for side in (self._given, self._made)]
        signature = Signature(DEFAULT_SIGNATURE, sides[0], sides[1])
        self.signatures: Mapping[str, Signature] = {DEFAULT_SIGNATURE: signature}
        self.evidence = {
            DEFAULT_SIGNATURE: proven("graph", "every operator keeps rows apart", self._check)
        }

    def _check(self) -> None:
        self._interpreter.allocate_tensors()
        tflite_graph.check(self._interpreter)

    def predict(self, signature: Signature, inputs: Sequence[Array]) -> Sequence[Array]:
        shapes = [each.shape for each in inputs]
        if shapes != self._shapes:
            for details, shape in zip(self._given, shapes, strict=True):
                self._interpreter.resize_tensor_input(details["index"], shape)
            self._interpreter.allocate_tensors()
            self._shapes = shapes
        for details, array in zip(self._given, inputs, strict=True):
            self._interpreter.set_tensor(details["index"], array)
        self._interpreter.invoke()
        return [np.array(self._interpreter.get_tensor(details["index"])) for details in self._made]

    def close(self) -> None:
        self._interpreter = None


class TfliteRuntime:
    """``model.tflite``."""

    name = "tflite"
    runs_code = False

    def recognises(self, folder: Path) -> bool:
        return (folder / "model.tflite").is_file()

    def load(self, folder: Path, options: LoadOptions) -> TfliteModel:
        try:
            interpreter = _interpreter()(model_path=str(folder / "model.tflite"), num_threads=1)
        except Exception as error:
            raise ModelFailed(
                f"LiteRT cannot load it: {type(error).__name__}: {error}"[:2000]
            ) from error
        return TfliteModel(interpreter)


def _interpreter() -> Any:
    """LiteRT's interpreter, or the same one out of TensorFlow."""
    try:
        return import_framework("ai_edge_litert.interpreter").Interpreter
    except ImportError:
        return import_framework("tensorflow.lite.python.interpreter").Interpreter


def _spec(details: Any) -> TensorSpec:
    dtype = dtypes.BY_NAME.get(np.dtype(details["dtype"]).name) or dtypes.STRING
    shape = tuple(int(size) for size in details["shape_signature"])
    name = details["name"].removeprefix("serving_default_").partition(":")[0]
    return TensorSpec(name, dtype, shape, inner=name)
