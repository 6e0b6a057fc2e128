"""What fitted estimators of scikit-learn take: an array of features, texts, or a table with named
columns.

An estimator says how many features it had in training, and their names where it was a table. What
type a feature has is seen in the first transformer that stores values of it: an encoder its
categories, an imputer what it fills in.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from cloud_ml.serving import dtypes
from cloud_ml.serving.dtypes import DType
from cloud_ml.serving.runtimes.base import Array
from cloud_ml.serving.runtimes.imports import import_framework
from cloud_ml.serving.runtimes.lightgbm_categories import Codes, categories_of, type_of
from cloud_ml.serving.runtimes.strings import as_text
from cloud_ml.serving.signatures import Signature, TensorSpec

_WITHIN = ("best_estimator_", "regressor_", "estimator_", "estimators_", "calibrated_classifiers_")
"""Where estimators that contain others keep one that gets the same features."""
_DEEPEST = 16
_PASSED = ("passthrough", "drop", None)
_BY_KIND = {"O": dtypes.STRING, "U": dtypes.STRING, "i": dtypes.INT64, "b": dtypes.BOOL}


@dataclass(frozen=True, slots=True)
class Features:
    """The features of an estimator.

    ``types`` are those of the features that are used, by their places. ``names`` are the columns of
    the table that it was trained with. ``selected`` tells that a part of it selects columns by
    name, so that it takes a table only. ``codes`` are the categories of LightGBM's columns, by
    their places.
    """

    count: int
    types: Mapping[int, DType]
    names: tuple[str, ...] = ()
    selected: bool = False
    texts: bool = False
    codes: Mapping[int, Codes] = field(default_factory=dict)

    @property
    def uniform(self) -> DType | None:
        """The type of all features, if they have the same. One that is not used may be any
        number, but no text.
        """
        kinds = set(self.types.values())
        whole = self.count < 0 or len(self.types) == self.count
        return (
            kinds.pop()
            if len(kinds) == 1 and (whole or (kinds == {dtypes.DOUBLE} and not self.selected))
            else None
        )

    def inputs(self) -> tuple[TensorSpec, ...]:
        """One input for all features where they have one type; otherwise one for each that is
        used.
        """
        if self.texts:
            return (TensorSpec("x", dtypes.STRING, (-1,)),)
        kind = self.uniform
        if kind is not None:
            return (TensorSpec("x", kind, (-1, self.count), columns=self.names),)
        names = self.names or tuple(f"x{place}" for place in range(self.count))
        return tuple(
            TensorSpec(names[place], kind, (-1,)) for place, kind in sorted(self.types.items())
        )


def features_of(estimator: Any) -> Features:
    """What a fitted estimator takes."""
    if codes := categories_of(_get_fitted(estimator, "booster_")):
        names = tuple(str(name) for name in estimator.feature_name_)
        return with_categories(int(estimator.n_features_in_), names, codes)
    entrance = next(
        (each for each in _nested_estimators(estimator) if _vectorizes(each) or _selects(each)),
        None,
    )
    if entrance is not None and _vectorizes(entrance):
        return Features(-1, {}, texts=True)
    count = int(getattr(estimator, "n_features_in_", -1))
    names = tuple(str(name) for name in getattr(estimator, "feature_names_in_", ()))
    if len(names) != count:
        names = ()
    if entrance is not None and count >= 0:
        types = _selected_types(entrance, count)
        by_name = any(
            isinstance(each, str)
            for _, _, columns in entrance.transformers_
            for each in _each(columns)
        )
        return Features(count, types, names, selected=bool(names) and by_name)
    known = _types(estimator, count) if count >= 0 else None
    if known is None:
        return Features(count, dict.fromkeys(range(max(count, 1)), dtypes.DOUBLE), names)
    return Features(count, dict(enumerate(known)), names)


def with_categories(count: int, names: tuple[str, ...], codes: Mapping[int, Codes]) -> Features:
    """The features of a model of LightGBM that was trained with a table that has categories."""
    types = {
        place: type_of(codes[place]) if place in codes else dtypes.DOUBLE for place in range(count)
    }
    return Features(count, types, names, codes=codes)


def arrange_inputs(features: Features, signature: Signature) -> Callable[[Sequence[Array]], Any]:
    """What makes the estimator's argument of the inputs of a signature."""
    inputs = signature.inputs
    (spec, *more), rank = inputs, len(inputs[0].shape or ())
    if features.codes:
        return partial(_encode_categories, features, inputs)
    if more or (rank == 1 and not features.texts and features.count > 0):
        return partial(
            _table if features.names or features.count < 0 else _columns, features, inputs
        )
    names = features.names if features.selected else ()
    if spec.dtype is dtypes.STRING:
        if names:
            return lambda given: _name_columns(as_text(spec.name, given[0]), names)
        if features.texts:
            return lambda given: as_text(spec.name, given[0]).ravel()
        return lambda given: as_text(spec.name, given[0])
    if names:
        return lambda given: _name_columns(given[0], names)
    return itemgetter(0)


def _table(_: Features, inputs: Sequence[TensorSpec], given: Sequence[Array]) -> Any:
    """A table with a column for each input."""
    columns = {spec.name: _column(spec, each) for spec, each in zip(inputs, given, strict=True)}
    return import_framework("pandas").DataFrame(columns)


def _columns(features: Features, inputs: Sequence[TensorSpec], given: Sequence[Array]) -> Array:
    """An array in which the inputs have their places among the features; those that are not used
    are 0.
    """
    places = sorted(features.types) if len(inputs) == len(features.types) else range(len(inputs))
    columns = [_column(spec, each) for spec, each in zip(inputs, given, strict=True)]
    made = np.zeros((len(columns[0]), max(features.count, len(columns))), object)
    for place, column in zip(places, columns, strict=True):
        made[:, place] = column
    return made


def _encode_categories(
    features: Features, inputs: Sequence[TensorSpec], given: Sequence[Array]
) -> Array:
    """Numbers in which each category is its code; one that was not in the training is missing."""
    columns = given[0].reshape(len(given[0]), -1).T if len(inputs) == 1 else given
    specs = inputs if len(inputs) > 1 else list(inputs) * len(columns)
    made = np.empty((len(columns[0]), len(columns)), np.float64)
    for place, (spec, column) in enumerate(zip(specs, columns, strict=True)):
        made[:, place] = _codes(features.codes.get(place), spec, _column(spec, column))
    return made


def _codes(codes: Codes | None, spec: TensorSpec, values: Array) -> Any:
    """The codes of the values of a column; the values where they are numbers or codes already."""
    if codes is None or spec.dtype not in (dtypes.STRING, type_of(codes)):
        return values
    return [codes.get(value, np.nan) for value in values.tolist()]


def _column(spec: TensorSpec, array: Array) -> Array:
    return (as_text(spec.name, array) if spec.dtype is dtypes.STRING else array).ravel()


def _name_columns(rows: Array, names: Sequence[str]) -> Any:
    return import_framework("pandas").DataFrame(rows, columns=list(names))


def _nested_estimators(estimator: Any) -> Iterator[Any]:
    """The estimator and those within it that get the same features, outermost first."""
    for _ in range(_DEEPEST):
        if estimator is None or isinstance(estimator, str):
            return
        yield estimator
        estimator = _next_within(estimator)


def _next_within(estimator: Any) -> Any:
    if steps := getattr(estimator, "steps", None):
        return next((step for _, step in steps if step not in _PASSED), None)
    if union := getattr(estimator, "transformer_list", None):
        return next((step for _, step in union if step not in _PASSED), None)
    for name in _WITHIN:
        found = getattr(estimator, name, None)
        if isinstance(found, list) and found:
            return getattr(found[0], "estimator", found[0])
        if found is not None and not isinstance(found, np.ndarray | list):
            return found
    return None


def _get_fitted(estimator: Any, name: str) -> Any:
    """An attribute that only a fitted estimator has; None where there is none."""
    try:
        return getattr(estimator, name, None)
    except Exception:  # scikit-learn's NotFittedError, and whatever a property raises
        return None


def _vectorizes(estimator: Any) -> bool:
    """Whether it takes texts, as ``TfidfVectorizer`` does."""
    return (
        hasattr(estimator, "build_analyzer") and getattr(estimator, "input", "content") == "content"
    )


def _selects(estimator: Any) -> bool:
    """Whether it is a ``ColumnTransformer``."""
    return hasattr(estimator, "transformers_") and hasattr(
        estimator, "_transformer_to_input_indices"
    )


def _selected_types(transformer: Any, count: int) -> dict[int, DType]:
    """The types of the columns that a ``ColumnTransformer`` uses."""
    places: Mapping[str, Sequence[int]] = transformer._transformer_to_input_indices
    found: dict[int, DType] = {}
    for name, step, _ in transformer.transformers_:
        if isinstance(step, str) and step == "drop":
            continue
        selected = [int(place) for place in places.get(name, ())]
        if not isinstance(step, str) and any(map(_vectorizes, _nested_estimators(step))):
            found.update(dict.fromkeys(selected, dtypes.STRING))
            continue
        types = _types(step, len(selected)) or [dtypes.DOUBLE] * len(selected)
        for place, kind in zip(selected, types, strict=True):
            found[place] = kind if kind is not dtypes.DOUBLE else found.get(place, kind)
    return {place: kind for place, kind in found.items() if place < count}


def _types(step: Any, count: int) -> list[DType] | None:
    """The types of so many features, where the step or the first of its steps that knows values
    of them tells.
    """
    for each in (step, *(inner for _, inner in getattr(step, "steps", None) or ())):
        for name in ("categories_", "statistics_"):
            values = getattr(each, name, None)
            if not isinstance(values, list | np.ndarray) or len(values) != count:
                continue
            if any(isinstance(value, np.ndarray | str) for value in values):
                return [_type_of(np.asarray(value)) for value in values]
    return None


def _type_of(values: np.ndarray[Any, Any]) -> DType:
    """The type of a feature with these values. A column of objects has strings, unless none of
    them is one.
    """
    if values.dtype.kind == "O" and not any(isinstance(value, str) for value in values.ravel()):
        return dtypes.DOUBLE
    return _BY_KIND.get(values.dtype.kind, dtypes.DOUBLE)


def _each(columns: Any) -> Iterator[Any]:
    if isinstance(columns, list | tuple | np.ndarray):
        yield from columns
    else:
        yield columns
