"""A SavedModel, run by TensorFlow."""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cloud_ml.serving.errors import BadRequest, ModelFailed
from cloud_ml.serving.independence import tensorflow_file, tensorflow_graph
from cloud_ml.serving.independence.evidence import Evidence, proven
from cloud_ml.serving.independence.tensor_info import NotIndependent
from cloud_ml.serving.runtimes.base import Array
from cloud_ml.serving.runtimes.imports import import_framework
from cloud_ml.serving.runtimes.tensorflow import described
from cloud_ml.serving.signatures import Signature


class SavedModel:
    """The signatures of a loaded SavedModel as functions."""

    def __init__(self, loaded: Any, signatures: Mapping[str, Signature]) -> None:
        import tensorflow as tf  # noqa: PLC0415

        self.signatures = signatures
        self.evidence: Mapping[str, Evidence] = {}
        self._constant = tf.constant
        self._refused = (tf.errors.InvalidArgumentError, tf.errors.OutOfRangeError)
        self._functions = {name: loaded.signatures[name] for name in signatures}
        self._loaded = loaded  # owns the variables
        self._dtypes = {
            name: [tf.as_dtype(spec.dtype.number) for spec in each.inputs]
            for name, each in signatures.items()
        }

    def predict(self, signature: Signature, inputs: Sequence[Array]) -> Sequence[Array]:
        types = self._dtypes[signature.name]
        given = {
            spec.name: self._constant(array, dtype)
            for spec, array, dtype in zip(signature.inputs, inputs, types, strict=True)
        }
        try:
            made = self._functions[signature.name](**given)
        except self._refused as error:
            raise BadRequest(f"the model refuses these values: {error}"[:2000]) from error
        return [np.asarray(made[spec.name].numpy()) for spec in signature.outputs]

    def close(self) -> None:
        self._functions.clear()
        self._loaded = None


def load(folder: Path) -> SavedModel:
    """Load it into this process; the first one imports TensorFlow, which takes seconds.

    Raises:
        ModelFailed: where TensorFlow is not installed or refuses the model.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    signatures = described.signatures(folder)
    try:
        tf = import_framework("tensorflow")  # only where such a model is served

        loaded = tf.saved_model.load(str(folder), tags=[described.SERVE])
    except Exception as error:
        raise ModelFailed(
            f"TensorFlow cannot load it: {type(error).__name__}: {error}"[:2000]
        ) from error
    model = SavedModel(loaded, signatures)
    model.evidence = _evidence(folder, signatures)
    return model


def _evidence(folder: Path, signatures: Mapping[str, Signature]) -> dict[str, Evidence]:
    """What the graph shows of the rows of each signature; its functions are read once."""
    try:
        graph = tensorflow_file.read(folder / "saved_model.pb")
    except NotIndependent as reason:
        return dict.fromkeys(signatures, Evidence(False, "graph", str(reason)))
    found = "every operation of the graph keeps rows apart"
    return {
        name: proven("graph", found, partial(tensorflow_graph.check, graph, each))
        for name, each in signatures.items()
        if each.has_rows
    }
