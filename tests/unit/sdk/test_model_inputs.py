"""What people put into a data file for a model."""

from __future__ import annotations

from typing import Any

import pytest

from cloud_ml.errors import InvalidRequest
from cloud_ml.sdk.inference import ModelInputs, read_inputs


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"X": [[1]], "X_dtype": "float32"}, ModelInputs({"X": [[1]]}, {"X": "float32"})),
        ([[1, 2]], ModelInputs([[1, 2]])),
        ({"instances": [[1, 2]]}, ModelInputs([[1, 2]])),
        ({"instances": [1], "signature_name": "s"}, ModelInputs([1], signature="s")),
        ({"inputs": {"X": [1], "X_dtype": "int64"}}, ModelInputs({"X": [1]}, {"X": "int64"})),
        ({"inputs": [[1]]}, ModelInputs([[1]])),
        ({"dataframe_records": [{"a": 1}]}, ModelInputs([{"a": 1}])),
        (
            {"dataframe_split": {"columns": ["a", "b"], "data": [[1, "x"]]}},
            ModelInputs([{"a": 1, "b": "x"}]),
        ),
        ({"inputs": [1], "other": [2]}, ModelInputs({"inputs": [1], "other": [2]})),
    ],
)
def test_forms(document: Any, expected: ModelInputs) -> None:
    assert read_inputs(document) == expected


@pytest.mark.parametrize(
    "document",
    [
        {"instances": 1},
        {"dataframe_split": {"columns": ["a"], "data": [[1, 2]]}},
        {"dataframe_split": 1},
        {"inputs": {}},
        {},
        "text",
        None,
        {"instances": [1], "signature_name": 1},
        {"inputs": {"X": [1]}, "signature_name": 1},
    ],
)
def test_what_is_none_of_them_is_refused(document: Any) -> None:
    with pytest.raises(InvalidRequest):
        read_inputs(document)
