"""A class in Python: whatever else there is to run.

``model.py`` has a class ``Model`` with ``load(self, folder)`` and ``predict(self, inputs)``, which takes arrays by
name and gives arrays by name. ``signature.json`` tells what they are.
"""

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cloud_ml.serving import dtypes
from cloud_ml.serving.errors import ModelFailed
from cloud_ml.serving.runtimes import told
from cloud_ml.serving.runtimes.base import Array, LoadOptions
from cloud_ml.serving.signatures import Signature, TensorSpec


class PythonModel:
    """An instance of the class."""

    def __init__(self, instance: Any, signatures: dict[str, Signature]) -> None:
        self._instance = instance
        self.signatures: Mapping[str, Signature] = signatures

    def predict(self, signature: Signature, inputs: Sequence[Array]) -> Sequence[Array]:
        made = self._instance.predict(dict(zip([spec.name for spec in signature.inputs], inputs, strict=True)))
        if missing := [spec.name for spec in signature.outputs if spec.name not in made]:
            raise ModelFailed(f"the model did not give {', '.join(missing)}; it gave {', '.join(sorted(made))}")
        return [_array(spec, made[spec.name]) for spec in signature.outputs]

    def close(self) -> None:
        close = getattr(self._instance, "close", None)
        if close is not None:
            close()
        self._instance = None


class PythonRuntime:
    """``model.py`` in the folder of a version."""

    name = "python"
    runs_code = True

    def recognises(self, folder: Path) -> bool:
        return (folder / "model.py").is_file()

    def load(self, folder: Path, options: LoadOptions) -> PythonModel:
        signatures = told.needed(folder, "Python")
        name = f"cloud_ml_model_{folder.parent.name}_{folder.name}"
        spec = importlib.util.spec_from_file_location(name, folder / "model.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
            instance = module.Model()
            instance.load(folder)
        except Exception as error:
            raise ModelFailed(f"model.py cannot be loaded: {type(error).__name__}: {error}"[:2000]) from error
        return PythonModel(instance, signatures)


def _array(spec: TensorSpec, value: Any) -> Array:
    """What a model gave, in the type that it promised."""
    if spec.dtype is dtypes.STRING:
        return np.asarray(value, object)
    return np.asarray(value).astype(spec.dtype.numpy, copy=False)
