"""TensorFlow's SavedModel, by TensorFlow."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cloud_ml.serving import dtypes
from cloud_ml.serving.errors import ModelFailed
from cloud_ml.serving.runtimes.base import Array
from cloud_ml.serving.signatures import PREDICT, Signature, TensorSpec


class SavedModel:
    """A loaded SavedModel: its signatures as concrete functions."""

    def __init__(self, loaded: Any, signatures: Mapping[str, Signature]) -> None:
        import tensorflow as tf  # noqa: PLC0415

        self._constant = tf.constant
        self._functions = dict(loaded.signatures)
        self._loaded = loaded  # owns the variables
        self.signatures = signatures
        self._dtypes = {
            name: [tf.as_dtype(spec.dtype.number) for spec in each.inputs] for name, each in signatures.items()
        }

    def predict(self, signature: Signature, inputs: Sequence[Array]) -> Sequence[Array]:
        types = self._dtypes[signature.name]
        given = {
            spec.name: self._constant(array, dtype)
            for spec, array, dtype in zip(signature.inputs, inputs, types, strict=True)
        }
        made = self._functions[signature.name](**given)
        return [np.asarray(made[spec.name].numpy()) for spec in signature.outputs]

    def close(self) -> None:
        self._functions.clear()
        self._loaded = None


class SavedModelRuntime:
    """``saved_model.pb`` in the folder of a version."""

    name = "tensorflow"

    def recognises(self, folder: Path) -> bool:
        return (folder / "saved_model.pb").is_file() or (folder / "saved_model.pbtxt").is_file()

    def load(self, folder: Path) -> SavedModel:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        try:
            import tensorflow as tf  # noqa: PLC0415 - seconds, only where such a model is served

            loaded = tf.saved_model.load(str(folder))
        except Exception as error:
            raise ModelFailed(f"TensorFlow cannot load it: {type(error).__name__}: {error}"[:2000]) from error
        return SavedModel(loaded, {name: _described(name, each) for name, each in loaded.signatures.items()})


def _described(name: str, function: Any) -> Signature:
    _, given = function.structured_input_signature
    made = function.structured_outputs
    return Signature(
        name,
        tuple(_spec(key, given[key]) for key in sorted(given)),
        tuple(_spec(key, made[key]) for key in sorted(made)),
        PREDICT,
    )


def _spec(name: str, tensor: Any) -> TensorSpec:
    dtype = dtypes.BY_NUMBER.get(tensor.dtype.as_datatype_enum)
    if dtype is None:
        raise ModelFailed(f"{name!r} is a {tensor.dtype.name}, which no protocol here carries")
    shape = (
        None if tensor.shape.rank is None else tuple(-1 if size is None else size for size in tensor.shape.as_list())
    )
    return TensorSpec(name, dtype, shape, inner=tensor.name)
