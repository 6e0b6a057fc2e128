"""XGBoost's and LightGBM's boosters: from their own formats, which hold no code, and pickled."""

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from cloud_ml.serving import dtypes
from cloud_ml.serving.errors import ModelFailed
from cloud_ml.serving.independence.evidence import Evidence
from cloud_ml.serving.runtimes import signature_file
from cloud_ml.serving.runtimes.base import DEFAULT_SIGNATURE, Array, LoadOptions
from cloud_ml.serving.runtimes.imports import import_framework
from cloud_ml.serving.runtimes.lightgbm_categories import categories_of
from cloud_ml.serving.runtimes.sklearn_inputs import arrange_inputs, with_categories
from cloud_ml.serving.signatures import Signature, TensorSpec

_XGBOOST = ("model.ubj", "model.json")


class Booster:
    """Either of them.

    Args:
        predict: Takes a row of numbers for each answer.
        signatures: One.
        arrange: Makes these rows of the inputs; without, they are the one input.
    """

    def __init__(
        self,
        predict: Any,
        signatures: dict[str, Signature],
        arrange: Callable[[Sequence[Array]], Any] = itemgetter(0),
    ) -> None:
        self._predict = predict
        self._arrange = arrange
        self.signatures: Mapping[str, Signature] = signatures
        found = Evidence(
            True, "kind", "boosted trees and linear models handle each row independently"
        )
        self.evidence = dict.fromkeys(signatures, found)

    def predict(self, signature: Signature, inputs: Sequence[Array]) -> Sequence[Array]:
        made = np.asarray(self._predict(self._arrange(inputs)))
        return [made.astype(signature.outputs[0].dtype.numpy, copy=False)]

    def close(self) -> None:
        self._predict = None


class XGBoostRuntime:
    """``model.ubj`` or ``model.json``."""

    name = "xgboost"
    runs_code = False

    def recognises(self, folder: Path) -> bool:
        return any((folder / name).is_file() for name in _XGBOOST)

    def load(self, folder: Path, options: LoadOptions) -> Booster:
        file = next(folder / name for name in _XGBOOST if (folder / name).is_file())
        try:
            xgboost = import_framework("xgboost")  # only where such a model is served

            booster = xgboost.Booster({"nthread": 1})
            booster.load_model(file)
        except Exception as error:
            raise ModelFailed(
                f"XGBoost cannot load it: {type(error).__name__}: {_without_trace(error)}"[:2000]
            ) from error
        return served_xgboost(booster, folder)


class LightGBMRuntime:
    """``model.txt``."""

    name = "lightgbm"
    runs_code = False

    def recognises(self, folder: Path) -> bool:
        return (folder / "model.txt").is_file()

    def load(self, folder: Path, options: LoadOptions) -> Booster:
        try:
            lightgbm = import_framework("lightgbm")  # only where such a model is served

            booster = lightgbm.Booster(
                model_file=str(folder / "model.txt"), params={"num_threads": 1}
            )
        except Exception as error:
            raise ModelFailed(
                f"LightGBM cannot load it: {type(error).__name__}: {error}"[:2000]
            ) from error

        return served_lightgbm(booster, folder)


def pickled_booster(made: object, folder: Path) -> Booster | None:
    """The model of a booster that was pickled; None for anything else, such as an estimator."""
    kind = type(made)
    if kind.__name__ != "Booster":
        return None
    served = _OF_PACKAGES.get(kind.__module__.partition(".")[0])
    return served(made, folder) if served else None


def served_xgboost(booster: Any, folder: Path) -> Booster:
    """The model of a loaded booster of XGBoost."""
    booster.set_param({"nthread": 1})
    sample = np.zeros((1, booster.num_features()), np.float32)
    columns = tuple(booster.feature_names or ())
    described = signature_file.read(folder) or _describe_booster(
        booster.inplace_predict(sample), sample, columns
    )
    return Booster(booster.inplace_predict, described)


def served_lightgbm(booster: Any, folder: Path) -> Booster:
    """The model of a loaded booster of LightGBM, with the categories that it was trained with."""

    def predict(rows: Array) -> Array:
        made: Array = booster.predict(rows, num_threads=1)
        return made

    sample = np.zeros((1, booster.num_feature()), np.float64)
    columns = tuple(booster.feature_name())
    if codes := categories_of(booster):
        features = with_categories(len(columns), columns, codes)
        described = signature_file.read(folder) or _name_outputs(features.inputs(), predict(sample))
        signature = next(iter(described.values()))
        return Booster(predict, described, arrange_inputs(features, signature))
    unnamed = columns == tuple(f"Column_{place}" for place in range(len(columns)))
    described = signature_file.read(folder) or _describe_booster(
        predict(sample), sample, () if unnamed else columns
    )
    return Booster(predict, described)


_OF_PACKAGES: Mapping[str, Callable[[Any, Path], Booster]] = {
    "xgboost": served_xgboost,
    "lightgbm": served_lightgbm,
}


def _without_trace(error: Exception) -> str:
    """What XGBoost says, without the addresses in its own code."""
    return str(error).partition("Stack trace:")[0].strip()


def _describe_booster(made: Array, sample: Array, columns: tuple[str, ...]) -> dict[str, Signature]:
    """From one prediction: boosters know how many features they take, and show what they give."""
    given = TensorSpec("x", dtypes.of_array(sample), (-1, sample.shape[1]), columns=columns)
    return _name_outputs((given,), made)


def _name_outputs(given: tuple[TensorSpec, ...], made: Array) -> dict[str, Signature]:
    back = TensorSpec("y", dtypes.of_array(np.asarray(made)), (-1, *np.shape(made)[1:]))
    return {DEFAULT_SIGNATURE: Signature(DEFAULT_SIGNATURE, given, (back,))}
