"""scikit-learn's estimators: skops files, which hold no code, and pickles, which do."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cloud_ml.serving import dtypes
from cloud_ml.serving.errors import ModelFailed
from cloud_ml.serving.independence import estimators
from cloud_ml.serving.independence.evidence import Evidence, proven
from cloud_ml.serving.runtimes import signature_file
from cloud_ml.serving.runtimes.base import DEFAULT_SIGNATURE, Array, LoadOptions
from cloud_ml.serving.runtimes.boosting import Booster, pickled_booster
from cloud_ml.serving.runtimes.imports import import_framework, import_lock
from cloud_ml.serving.runtimes.load_advice import (
    check_estimator,
    pickle_refusal,
    user_name,
)
from cloud_ml.serving.runtimes.sklearn_inputs import arrange_inputs, features_of
from cloud_ml.serving.signatures import Signature, TensorSpec

_PICKLES = ("model.joblib", "model.pkl")
_METHODS = {"probabilities": "predict_proba", "predict_proba": "predict_proba"}
"""Methods by the outputs of ``serving_default`` that they give; any other output is of
``predict``.
"""


class SklearnModel:
    """An estimator. Its signatures are its methods: ``serving_default`` predicts, others are
    called by their names.
    """

    def __init__(self, estimator: Any, signatures: dict[str, Signature]) -> None:
        self._estimator = estimator
        self.signatures: Mapping[str, Signature] = signatures
        features = features_of(estimator)
        self._arrange = {name: arrange_inputs(features, each) for name, each in signatures.items()}
        self.evidence = {name: _evidence(estimator, _method(name)) for name in signatures}

    def predict(self, signature: Signature, inputs: Sequence[Array]) -> Sequence[Array]:
        rows = self._arrange[signature.name](inputs)
        if signature.name != DEFAULT_SIGNATURE:
            return [self._call(signature.name, signature.outputs[0], rows)]
        made: dict[str, Array] = {}
        for spec in signature.outputs:
            method = _METHODS.get(spec.name, "predict")
            if method not in made:
                made[method] = self._call(method, spec, rows)
        return [made[_METHODS.get(spec.name, "predict")] for spec in signature.outputs]

    def _call(self, method: str, spec: TensorSpec, rows: Any) -> Array:
        given = getattr(self._estimator, method)(rows)
        made = np.asarray(
            given.toarray() if method == "transform" and hasattr(given, "toarray") else given
        )
        return (
            made.astype(object)
            if spec.dtype is dtypes.STRING
            else made.astype(spec.dtype.numpy, copy=False)
        )

    def close(self) -> None:
        self._estimator = None


def _method(signature: str) -> str:
    return "predict" if signature == DEFAULT_SIGNATURE else signature


def _evidence(estimator: Any, method: str) -> Evidence:
    found = f"{type(estimator).__name__} handles each row independently"
    return proven("kind", found, lambda: estimators.check(estimator, method))


class SkopsRuntime:
    """``model.skops``: nothing but types that are known to be harmless is loaded."""

    name = "scikit-learn (skops)"
    runs_code = False

    def recognises(self, folder: Path) -> bool:
        return (folder / "model.skops").is_file()

    def load(self, folder: Path, options: LoadOptions) -> SklearnModel:
        try:
            skops_io = import_framework("skops.io")  # only where such a model is served

            with import_lock():
                estimator = skops_io.load(folder / "model.skops")
        except Exception as error:
            raise ModelFailed(
                f"skops cannot load it: {type(error).__name__}: {error}"[:2000]
            ) from error
        return SklearnModel(estimator, signature_file.read(folder) or describe_estimator(estimator))


class PickledRuntime:
    """``model.joblib`` or ``model.pkl``: loading one runs what its maker put in."""

    name = "scikit-learn (pickle)"
    runs_code = True

    def recognises(self, folder: Path) -> bool:
        return any((folder / name).is_file() for name in _PICKLES)

    def load(self, folder: Path, options: LoadOptions) -> SklearnModel | Booster:
        file = next(folder / name for name in _PICKLES if (folder / name).is_file())
        try:
            joblib = import_framework("joblib")  # reads plain pickles too

            with import_lock():
                estimator = joblib.load(file)
        except Exception as error:
            raise pickle_refusal(file, error) from error
        if (booster := pickled_booster(estimator, folder)) is not None:
            return booster
        check_estimator(estimator, user_name(file))
        return SklearnModel(estimator, signature_file.read(folder) or describe_estimator(estimator))


def describe_estimator(estimator: Any) -> dict[str, Signature]:
    """What a fitted estimator takes and gives: features; labels, and for classifiers
    probabilities.
    """
    given = features_of(estimator).inputs()
    classes = getattr(estimator, "classes_", None)
    label = (
        dtypes.of_array(np.asarray(classes)) if isinstance(classes, np.ndarray) else dtypes.DOUBLE
    )
    shape = (-1,) if getattr(estimator, "n_outputs_", 1) == 1 else (-1, int(estimator.n_outputs_))
    output = TensorSpec("label", label, shape)
    aliases = _on_request(estimator, classes, output)
    usual = Signature(DEFAULT_SIGNATURE, given, (output,), on_request=aliases)
    made = {DEFAULT_SIGNATURE: usual}
    for method in ("predict_proba", "decision_function", "transform"):
        if hasattr(estimator, method) and (
            method != "predict_proba" or isinstance(classes, np.ndarray)
        ):
            width = (len(classes),) if method == "predict_proba" and classes is not None else (-1,)
            rank = (
                ()
                if method == "decision_function" and classes is not None and len(classes) == 2
                else width
            )
            made[method] = Signature(
                method, given, (TensorSpec(method, dtypes.DOUBLE, (-1, *rank)),)
            )
    return made


def _on_request(estimator: Any, classes: Any, output: TensorSpec) -> tuple[TensorSpec, ...]:
    """Outputs of a classifier beside its label: probabilities, and MLServer's names of both."""
    if not isinstance(classes, np.ndarray) or not hasattr(estimator, "predict_proba"):
        return ()
    proba = TensorSpec("probabilities", dtypes.DOUBLE, (-1, len(classes)))
    return proba, replace(output, name="predict"), replace(proba, name="predict_proba")
