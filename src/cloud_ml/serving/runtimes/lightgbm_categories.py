"""The categories of a table that LightGBM was trained with.

A booster splits by numbers: for a categorical column of pandas these are the places of its
categories. LightGBM keeps the categories, in the order of the columns that have them, and does not
say which columns these are (``pandas_categorical``). The header of a model does: the features that
it splits by category have ``-1:2:0`` there, others have their range, ``[18:79]``.

Source: ``_data_from_pandas`` in LightGBM's ``basic.py``; ``feature_infos`` in its model files.
"""

from collections.abc import Mapping
from typing import Any

from cloud_ml.serving import dtypes
from cloud_ml.serving.dtypes import DType

Codes = Mapping[object, float]
"""The number of each category."""

_UNUSED = "none"  # a feature without a split: it may have categories or not


def categories_of(booster: Any) -> dict[int, Codes]:
    """The categories of the columns that have some, by the places of these columns.

    Nothing for a booster that was trained with numbers, and where it cannot be told which columns
    have the categories: there such a column takes its numbers.
    """
    categories = getattr(booster, "pandas_categorical", None) or []
    places = _places(_feature_infos(booster), len(categories)) if categories else []
    return {
        place: {_plain(value): float(code) for code, value in enumerate(values)}
        for place, values in zip(places, categories, strict=bool(places))
    }


def type_of(codes: Codes) -> DType:
    """The type in which a request has these categories."""
    kinds = {type(value) for value in codes}
    if kinds <= {bool}:
        return dtypes.BOOL
    if kinds <= {int}:
        return dtypes.INT64
    return dtypes.DOUBLE if kinds <= {int, float} else dtypes.STRING


def _feature_infos(booster: Any) -> list[str]:
    header = booster.model_to_string(num_iteration=1)
    found = (line for line in header.splitlines() if line.startswith("feature_infos="))
    return next(found, "").partition("=")[2].split()


def _places(infos: list[str], count: int) -> list[int]:
    """The places of so many categorical columns; none where that is not clear."""
    sure = [place for place, info in enumerate(infos) if info[0] != "[" and info != _UNUSED]
    if len(sure) == count:
        return sure
    possible = [place for place, info in enumerate(infos) if info[0] != "["]
    return possible if len(possible) == count else []


def _plain(value: object) -> object:
    """A number or text of Python: a booster from memory has those of NumPy."""
    return value.item() if hasattr(value, "item") else value
