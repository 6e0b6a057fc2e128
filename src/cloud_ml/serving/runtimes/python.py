"""A class in Python: whatever else there is to run.

``model.py`` has a class ``Model`` with ``load(self, folder)`` and ``predict(self, inputs)``, which
takes arrays by name and gives arrays by name. ``signature.json`` tells what they are. An attribute
``batching`` of the class may be ``True`` or ``False`` or have one of both for each signature by
name: whether calls of several clients may run together.
"""

import importlib.util
import itertools
import linecache
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cloud_ml.serving import dtypes
from cloud_ml.serving.errors import ModelFailed
from cloud_ml.serving.independence.evidence import BatchingDecision
from cloud_ml.serving.runtimes import signature_file
from cloud_ml.serving.runtimes.base import Array, LoadOptions
from cloud_ml.serving.runtimes.imports import import_lock
from cloud_ml.serving.runtimes.output_discovery import complete_outputs
from cloud_ml.serving.signatures import Signature, TensorSpec

_loads = itertools.count(1)
"""A version may be loaded again before its predecessor is closed: each load has a module of its
own.
"""


class PythonModel:
    """An instance of the class."""

    def __init__(self, instance: Any, signatures: dict[str, Signature], module: str) -> None:
        self._instance = instance
        self._module = module
        self.signatures: Mapping[str, Signature] = _with_batching(instance, signatures)

    def predict(self, signature: Signature, inputs: Sequence[Array]) -> Sequence[Array]:
        made = self._instance.predict(
            dict(zip([spec.name for spec in signature.inputs], inputs, strict=True))
        )
        if missing := [spec.name for spec in signature.outputs if spec.name not in made]:
            raise ModelFailed(
                f"the model did not give {', '.join(missing)}; it gave {', '.join(sorted(made))}"
            )
        return [_array(spec, made[spec.name]) for spec in signature.outputs]

    def close(self) -> None:
        close = getattr(self._instance, "close", None)
        try:
            if close is not None:
                close()
        finally:
            self._instance = None
            _unload(self._module)


class PythonRuntime:
    """``model.py`` in the folder of a version."""

    name = "python"
    runs_code = True

    def recognises(self, folder: Path) -> bool:
        return (folder / "model.py").is_file()

    def load(self, folder: Path, options: LoadOptions) -> PythonModel:
        signatures = signature_file.require(folder, "Python code", "model.py")
        name = f"cloud_ml_model_{folder.parent.name}_{folder.name}_{next(_loads)}"
        spec = importlib.util.spec_from_file_location(name, folder / "model.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        # Before the code runs: dataclasses and pickle look up the module of a class there.
        sys.modules[name] = module
        try:
            with import_lock():
                spec.loader.exec_module(module)
            instance = module.Model()
            instance.load(folder)
            signatures = complete_outputs(
                signatures, lambda signature, inputs: _named_outputs(instance, signature, inputs)
            )
            return PythonModel(instance, signatures, name)
        except BaseException as error:
            _unload(name)
            if not isinstance(error, Exception) or isinstance(error, ModelFailed):
                raise
            raise ModelFailed(
                f"model.py cannot be loaded: {type(error).__name__}: {error}"[:2000]
            ) from error


def _named_outputs(
    instance: Any, signature: Signature, inputs: Sequence[Array]
) -> Mapping[str, Array]:
    given = dict(zip([spec.name for spec in signature.inputs], inputs, strict=True))
    return {str(name): np.asarray(value) for name, value in instance.predict(given).items()}


def _with_batching(instance: Any, signatures: dict[str, Signature]) -> dict[str, Signature]:
    """The signatures with what the class says of them.

    Raises:
        ModelFailed: where that is neither yes nor no.
    """
    batching = getattr(instance, "batching", None)
    if batching is None:
        return signatures
    by_name = (
        dict(batching) if isinstance(batching, Mapping) else dict.fromkeys(signatures, batching)
    )
    for name, value in by_name.items():
        if name not in signatures or not isinstance(value, bool):
            known = ", ".join(sorted(signatures))
            raise ModelFailed(
                f"attribute batching of the class is {batching!r}; True or False is allowed, or "
                f"one for {known}"
            )
    return {
        name: each.decided(
            BatchingDecision(by_name[name], "model", "attribute batching of its class")
        )
        if name in by_name
        else each
        for name, each in signatures.items()
    }


def _unload(module: str) -> None:
    """Forget a module. What was loaded again meanwhile has a name of its own."""
    sys.modules.pop(module, None)
    # Else a traceback of the next version would show lines of this one's file.
    linecache.checkcache()


def _array(spec: TensorSpec, value: Any) -> Array:
    """What a model gave, in the type that it promised."""
    if spec.dtype is dtypes.STRING:
        return np.asarray(value, object)
    return np.asarray(value).astype(spec.dtype.numpy, copy=False)
