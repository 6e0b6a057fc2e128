"""Runs that take away the right to be batched: which inputs are made up for them, and what
counts as a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from cloud_ml.serving import dtypes
from cloud_ml.serving.independence import probe
from cloud_ml.serving.runtimes.base import Array
from cloud_ml.serving.signatures import Signature, TensorSpec


class Function:
    """A model that is a function of one array."""

    def __init__(self, function: Callable[[Any], Any], dtype: dtypes.DType, *sizes: int) -> None:
        given, back = TensorSpec("x", dtype, (-1, *sizes)), TensorSpec("y", dtypes.FLOAT, (-1,))
        self.signature = Signature("s", (given,), (back,))
        self.signatures: Mapping[str, Signature] = {"s": self.signature}
        self._function = function
        self.seen: list[tuple[int, ...]] = []

    def predict(self, signature: Signature, inputs: Sequence[Array]) -> Sequence[Array]:
        self.seen.append(inputs[0].shape)
        return [np.asarray(self._function(inputs[0]), np.float32)]

    def close(self) -> None:
        pass

    @property
    def difference(self) -> str:
        return probe.difference(self, self.signature)


def of_size(columns: int, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function, of inputs of this size only."""

    def checked(x: Any) -> Any:
        if x.shape[1] != columns:
            raise ValueError(f"size {x.shape[1]}")
        return function(x)

    return checked


def lengths(x: Any) -> Any:
    return np.array([len(each) for each in x], np.float32)


def numbers(x: Any) -> Any:
    return x.astype(np.float32)


@pytest.mark.parametrize("size", [2, 3, 4, 8])
def test_open_sizes_are_made_up_until_the_model_takes_them(size: int) -> None:
    assert Function(of_size(size, lambda x: x.sum(1)), dtypes.FLOAT, -1).difference == ""
    mixes = Function(of_size(size, lambda x: x.sum(1) - x.mean()), dtypes.FLOAT, -1)
    assert mixes.difference.startswith("a row among 2 differs from the same row alone")
    assert mixes.seen[-1] == (2, size)


@pytest.mark.parametrize("function", [lengths, numbers])
def test_texts_are_made_up(function: Callable[[Any], Any]) -> None:
    assert Function(function, dtypes.STRING).difference == ""
    mixes = Function(lambda x: function(x) - function(x).max(), dtypes.STRING)
    assert mixes.difference.startswith("a row among ")


def test_a_model_that_fails_on_a_row_alone_and_not_among_others_differs() -> None:
    def several(x: Any) -> Any:
        if len(x) == 1:
            raise ValueError("one row has no variance")
        return x.sum(1)

    difference = Function(several, dtypes.FLOAT, 4).difference
    assert (
        difference
        == "the model failed for a row alone, and not among others: ValueError: one row has "
        "no variance"
    )


def test_a_model_that_takes_none_of_it_cannot_be_tried() -> None:
    never = Function(of_size(5, lambda x: x.sum(1)), dtypes.FLOAT, -1)
    assert never.difference == ""
    assert {shape[1] for shape in never.seen} == set(probe.SIZES)
