"""Keras's own file, by whatever Keras runs on (TensorFlow, JAX or PyTorch)."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cloud_ml.serving import dtypes
from cloud_ml.serving.errors import ModelFailed
from cloud_ml.serving.independence import keras_layers
from cloud_ml.serving.independence.evidence import Evidence, proven
from cloud_ml.serving.runtimes import signature_file
from cloud_ml.serving.runtimes.base import DEFAULT_SIGNATURE, Array, LoadOptions
from cloud_ml.serving.runtimes.imports import import_framework
from cloud_ml.serving.runtimes.load_advice import keras_refusal
from cloud_ml.serving.signatures import Signature, TensorSpec


class KerasModel:
    """A functional or sequential model."""

    def __init__(self, model: Any, signatures: dict[str, Signature]) -> None:
        self._model = model
        self._single = len(model.inputs) == 1
        self._names = [each.name for each in model.inputs]
        self.signatures: Mapping[str, Signature] = signatures
        found = proven("graph", "every layer keeps rows apart", partial(keras_layers.check, model))
        self.evidence: Mapping[str, Evidence] = dict.fromkeys(signatures, found)

    def predict(self, signature: Signature, inputs: Sequence[Array]) -> Sequence[Array]:
        by_name = dict(zip([spec.inner for spec in signature.inputs], inputs, strict=True))
        given = inputs[0] if self._single else [by_name[name] for name in self._names]
        # `predict` would build a data pipeline for each call.
        made = self._model.predict_on_batch(given)
        if isinstance(made, dict):
            return [np.asarray(made[spec.inner]) for spec in signature.outputs]
        return [np.asarray(each) for each in (made if isinstance(made, list | tuple) else [made])]

    def close(self) -> None:
        self._model = None


class KerasRuntime:
    """``model.keras`` in the folder of a version. Loaded in safe mode, which refuses what would
    run code.
    """

    name = "keras"
    runs_code = False

    def recognises(self, folder: Path) -> bool:
        return (folder / "model.keras").is_file()

    def load(self, folder: Path, options: LoadOptions) -> KerasModel:
        try:
            keras = import_framework("keras")  # seconds, only where such a model is served
        except Exception as error:
            raise ModelFailed(
                f"Keras cannot be imported: {type(error).__name__}: {error}"[:2000]
            ) from error
        try:
            # Without its losses and metrics, whose code may be missing here. Safe mode refuses
            # Lambda layers, which hold Python code (CVE-2024-3660).
            model = keras.saving.load_model(
                folder / "model.keras", compile=False, safe_mode=not options.allow_code
            )
        except Exception as error:
            raise keras_refusal(folder / "model.keras", str(keras.__version__), error) from error
        return KerasModel(
            model, signature_file.read(folder) or {DEFAULT_SIGNATURE: _describe_model(model)}
        )


def _describe_model(model: Any) -> Signature:
    sides = [tuple(_spec(each) for each in side) for side in (model.inputs, model.outputs)]
    return Signature(DEFAULT_SIGNATURE, sides[0], sides[1])


def _spec(tensor: Any) -> TensorSpec:
    dtype = dtypes.BY_NAME.get(str(tensor.dtype))
    if dtype is None:
        raise ModelFailed(f"{tensor.name!r} is {tensor.dtype}, which no protocol here carries")
    shape = tuple(-1 if size is None else int(size) for size in tensor.shape)
    return TensorSpec(tensor.name, dtype, shape, inner=tensor.name)
