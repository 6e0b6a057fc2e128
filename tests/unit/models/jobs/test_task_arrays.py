"""Sets of indexes as Slurm writes them."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from cloud_ml.errors import InvalidRequest
from cloud_ml.models.jobs.task_arrays import TaskArray, task_array


@pytest.mark.parametrize(
    ("text", "indices", "parallel"),
    [
        ("0-3", (0, 1, 2, 3), None),
        ("5", (5,), None),
        ("0-15:4", (0, 4, 8, 12), None),
        ("1,3,7", (1, 3, 7), None),
        ("7, 1-2 %2", (1, 2, 7), 2),
        ("0-99%8", tuple(range(100)), 8),
        ("4-4", (4,), None),
        ("999999", (999_999,), None),
    ],
)
def test_an_array_is_read(text: str, indices: tuple[int, ...], parallel: int | None) -> None:
    assert task_array("array", text) == TaskArray(indices, parallel)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("5-2", "5-2 ends before it begins"),
        ("0-9%0", "no task could run at %0"),
        ("1,2,1", "index 1 is in it twice"),
        ("0-5,3", "index 3 is in it twice"),
        ("-1", "indexes from 0"),
        ("0--1", "indexes from 0"),
        ("0-9:0", "the step of 0-9:0 is 0"),
        ("1000000", "1000000 is too large"),
        ("0-999999", "it has 1000000 indexes"),
        ("", "indexes from 0"),
        ("0-9%", "indexes from 0"),
        ("0-9%8%8", "indexes from 0"),
        ("0-9%-1", "indexes from 0"),
        ("1,", "indexes from 0"),
        ("a-b", "indexes from 0"),
        ("٣", "indexes from 0"),
        ("1\n", "indexes from 0"),
        (10, "indexes from 0"),
        (["1"], "indexes from 0"),
        ("1," * 3000 + "1", "indexes from 0"),
    ],
)
def test_what_is_no_array_is_refused(value: Any, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        task_array("array", value)
    assert message in str(caught.value)
    assert (caught.value.field, caught.value.value) == ("array", value)
    assert caught.value.allowed


def test_an_array_that_is_too_large_is_never_listed() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest, match="400000000 indexes"):
            task_array("array", ",".join(["0-999999"] * 400))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
