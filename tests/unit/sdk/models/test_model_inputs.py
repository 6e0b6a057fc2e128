"""What people put into a data file for a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cloud_ml.errors import InvalidRequest
from cloud_ml.sdk.models.inference import (
    ModelInputs,
    Table,
    given_inputs,
    read_inputs,
    trained_columns,
)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"X": [[1]], "X_dtype": "float32"}, ModelInputs({"X": [[1]]}, {"X": "float32"})),
        ([[1, 2]], ModelInputs([[1, 2]])),
        ({"instances": [[1, 2]]}, ModelInputs([[1, 2]])),
        ({"instances": [1], "signature_name": "s"}, ModelInputs([1], signature="s")),
        ({"inputs": {"X": [1], "X_dtype": "int64"}}, ModelInputs({"X": [1]}, {"X": "int64"})),
        ({"inputs": [[1]]}, ModelInputs([[1]])),
        ({"instances": [[1]], "parameters": {}}, ModelInputs([[1]])),
        ({"inputs": [[1]], "params": None}, ModelInputs([[1]])),
        ({"dataframe_records": [{"a": 1}]}, ModelInputs(Table(("a",), [[1]]))),
        (
            {"dataframe_split": {"columns": ["a", "b"], "data": [[1, "x"]]}},
            ModelInputs(Table(("a", "b"), [[1, "x"]])),
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
        {"dataframe_split": {"columns": ["a", "a"], "data": [[1, 2]]}},
        {"dataframe_split": {"columns": [1], "data": [[1]]}},
        {"dataframe_split": 1},
        {"dataframe_records": []},
        {"dataframe_records": [{"a": 1}, {"b": 1}]},
        {"instances": [[1]], "parameters": {"temperature": 2}},
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


@pytest.mark.parametrize("document", [{}, {"inputs": {}}])
def test_an_empty_object_is_called_so(document: Any) -> None:
    with pytest.raises(
        InvalidRequest, match="empty object; give a value for each input"
    ) as refused:
        read_inputs(document)
    assert "cloudml models describe" in str(refused.value.hint)


class Frame:
    """A data frame, as far as we know one."""

    columns = ("a", "b")

    def itertuples(self, *, index: bool, name: str | None) -> Iterator[tuple[int, str]]:
        assert (index, name) == (False, None)
        yield from [(1, "x"), (2, "y")]


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ({"X": [[1]]}, ModelInputs({"X": [[1]]})),
        ({"inputs": [[1]]}, ModelInputs({"inputs": [[1]]})),
        ({"inputs": {"X": [1]}}, ModelInputs({"X": [1]})),
        ({"instances": [[1]]}, ModelInputs([[1]])),
        ({"X_dtype": [1], "X": [2]}, ModelInputs({"X_dtype": [1], "X": [2]})),
        ([[1]], ModelInputs([[1]])),
        (Frame(), ModelInputs(Table(("a", "b"), [[1, "x"], [2, "y"]]))),
        (ModelInputs([1]), ModelInputs([1])),
    ],
)
def test_what_a_program_gives(inputs: Any, expected: ModelInputs) -> None:
    """Names of a program are inputs. In a data file, ``X_dtype`` may be a type."""
    assert given_inputs(inputs) == expected


def test_a_table_is_columns_or_rows_as_the_model_takes_it() -> None:
    table = Table(("a", "b"), [[1, "x"], [2, "y"]])
    columns = {"a": [1, 2], "b": ["x", "y"]}
    assert table.for_inputs(["b", "a"]) == columns
    assert table.for_inputs(["features"]) == [[1, "x"], [2, "y"]]
    assert table.for_inputs(["a"]) == table.for_inputs([]) == columns


@pytest.mark.parametrize(
    ("trained", "rows"),
    [
        (("a", "b"), [[1, "x"], [2, "y"]]),
        (("b", "a"), [["x", 1], ["y", 2]]),
        (None, [[1, "x"], [2, "y"]]),
    ],
)
def test_columns_are_brought_into_the_order_of_the_training(
    trained: tuple[str, ...] | None, rows: list[list[object]]
) -> None:
    table = Table(("a", "b"), [[1, "x"], [2, "y"]])
    assert table.for_inputs(["features"], trained) == rows


def test_names_that_are_stored_without_spaces_and_numbers_for_names_are_known() -> None:
    assert Table(("net income", "age"), [[1, 2]]).for_inputs(["x"], ("age", "net_income")) == [
        [2, 1]
    ]
    assert Table(("0", "1"), [[1, 2]]).for_inputs(["x"], ("b", "a")) == [[1, 2]]


@pytest.mark.parametrize("columns", [("a", "c"), ("a", "b", "c"), ("a",)])
def test_other_columns_than_those_of_the_training_are_refused(columns: tuple[str, ...]) -> None:
    table = Table(columns, [[1] * len(columns)])
    with pytest.raises(InvalidRequest, match="the model was trained with the columns a, b"):
        table.for_inputs(["x"], ("a", "b"))


@pytest.mark.parametrize(
    "metadata", [None, {}, {"metadata": {"columns": 1}}, {"metadata": {"columns": {"s": {}}}}]
)
def test_a_model_that_tells_no_columns_has_none(metadata: object) -> None:
    assert trained_columns(metadata, "s") is None


def test_columns_that_are_too_many_to_be_told_are_not_guessed() -> None:
    assert trained_columns({"metadata": {"columns": {"s": {"x": []}}}}, "s") == ()
    with pytest.raises(InvalidRequest, match="too many columns"):
        Table(("a", "b"), [[1, 2]]).for_inputs(["x"], ())


def test_the_columns_of_the_training_are_told_by_signature() -> None:
    document = {"metadata": {"columns": {"serving_default": {"x": ["a", "b"]}}}}
    assert trained_columns(document, None) == ("a", "b")
