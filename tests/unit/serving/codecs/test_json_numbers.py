from __future__ import annotations

import itertools
import json
import random
from typing import Any

import numpy as np
import pytest

from cloud_ml.serving import dtypes
from cloud_ml.serving.codecs.json_numbers import WALKED, Numbers, shape_of
from cloud_ml.serving.dtypes import DType


def read(value: Any, dtype: DType = dtypes.FLOAT, rank: int = 2, key: str = "instances") -> Any:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return Numbers().read(b'{"%b": ' % key.encode() + text + b"}", dtype, rank)


@pytest.mark.parametrize(
    "shape", [(3,), (1,), (1, 5), (2, 3), (1, 1), (4, 1), (2, 3, 4), (1, 2, 1, 3), (2, 1, 1, 1)]
)
def test_even_lists(shape: tuple[int, ...]) -> None:
    numbers = np.random.default_rng(1).standard_normal(shape)
    for text in (
        json.dumps(numbers.tolist()),
        json.dumps(numbers.tolist(), indent=1, separators=(" ,", ":")),
    ):
        form, found_shape, flat = read(text.encode(), rank=len(shape))
        assert (form, found_shape) == ("instances", shape)
        np.testing.assert_array_equal(flat, numbers.astype(np.float32).ravel())


def test_whole_numbers_keep_every_digit() -> None:
    form, shape, flat = read([2**62 + 1, -(2**63)], dtypes.INT64, 1, "inputs")
    assert (form, shape, flat.tolist()) == ("inputs", (2,), [2**62 + 1, -(2**63)])


@pytest.mark.parametrize("key", ["\\u00006puts", "inputs\\u0000", "", "other"])
def test_a_name_that_is_none_of_the_two_is_for_others_to_refuse(key: str) -> None:
    assert read([1], rank=1, key=key) is None


def test_too_large_is_infinity() -> None:
    assert read([1e300, -1e300], rank=1)[2].tolist() == [np.inf, -np.inf]


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ([[1, 2], [3]], dtypes.FLOAT),
        ([[1, 2], [3], [4, 5, 6]], dtypes.FLOAT),
        ([[1], [], [2]], dtypes.FLOAT),
        ([[1, 2], 3], dtypes.FLOAT),
        ([1, [2, 3]], dtypes.FLOAT),
        ([[1, [2]], [3, 4]], dtypes.FLOAT),
        ([[[], 1, 2], [3, 4, 5]], dtypes.FLOAT),
        ([[1, [], [2, 3]], [4, 5, 6]], dtypes.FLOAT),
        ([[[1], 2]], dtypes.FLOAT),
        ([[], []], dtypes.FLOAT),
        ([], dtypes.FLOAT),
        (["ab", "cd"], dtypes.FLOAT),
        ([{"a": 1}], dtypes.FLOAT),
        (b"[" * 33 + b"1" + b"]" * 33, dtypes.FLOAT),
        (b"7", dtypes.FLOAT),
        ([[[1, 2]], [[1], [2]]], dtypes.FLOAT),
        (b"[[1,2],[3,]]", dtypes.FLOAT),
        (b"[[1,2],[3,4]", dtypes.FLOAT),
        (b"[[1 2],[3,4]]", dtypes.FLOAT),
        (b"[[,],[,]]", dtypes.FLOAT),
        (b"[[1,NaN]]", dtypes.FLOAT),
        (b'[[1,"2"]]', dtypes.FLOAT),
        (b"[[1,true]]", dtypes.FLOAT),
        (b"[[1,null]]", dtypes.FLOAT),
        (b"[[1,{}]]", dtypes.FLOAT),
        (b'[[1,2]], "signature_name": "a"', dtypes.FLOAT),
        (b'[[1,2]], "instances": [[3,4]]', dtypes.FLOAT),
        ([[1, 2.0]], dtypes.INT32),
        ([[1, 2**31]], dtypes.INT32),
        ([[-1]], dtypes.UINT8),
        ([[2**63]], dtypes.INT64),
        ([[1]], dtypes.STRING),
        ([[1]], dtypes.BOOL),
        ([[1]], dtypes.UINT64),
    ],
)
def test_the_rest_is_left_to_who_looks_closer(value: Any, dtype: DType) -> None:
    assert read(value, dtype) is None


def test_a_reader_that_failed_reads_on() -> None:
    numbers = Numbers()
    for _ in range(3):
        assert numbers.read(b'{"inputs": [1, "a"]}', dtypes.FLOAT, 1) is None
        assert numbers.read(b'{"inputs": [1, 2]}', dtypes.FLOAT, 1) is not None


def _any(random_: random.Random, depth: int) -> Any:
    if depth == 0 or random_.random() < 0.1:
        return random_.randrange(1000)
    return [_any(random_, depth - 1) for _ in range(random_.randrange(4))]


def test_it_agrees_with_numpy_on_lists_of_every_form() -> None:
    random_, even = random.Random(4), 0
    for _ in range(20_000):
        value = _any(random_, random_.randrange(1, 4))
        if not isinstance(value, list):
            continue
        try:
            expected: Any = np.array(value, np.float32)
        except ValueError:
            expected = None
        for rank in (1, 2, 3):
            found = read(value, rank=rank)
            if found is not None:
                even += 1
                assert expected is not None, value
                assert found[1] == expected.shape, value
                assert found[2].tolist() == expected.ravel().tolist()
    assert even > 1000


def test_every_text_of_brackets_and_commas_has_the_shape_that_json_has() -> None:
    """Each bone is tried with digits in between, as a reader would see it."""
    for size in range(1, 9):
        for bones in itertools.product("[],", repeat=size):
            text = "".join(bones)
            if not text.startswith("["):
                continue
            shape = shape_of(text.encode())
            if shape is None:
                continue
            filled = (
                text.replace(",", "1,").replace("]", "1]").replace("]1,", "],").replace("]1]", "]]")
            )
            assert np.array(json.loads(filled.replace("]1]", "]]"))).shape == shape, text


@pytest.mark.parametrize("shape", [(WALKED + 9, 2), (2, WALKED, 1, 1), (WALKED - 1, 1)])
def test_very_many_lists_are_read_as_few_are(shape: tuple[int, ...]) -> None:
    numbers = np.random.default_rng(1).random(shape)
    text = json.dumps(numbers.tolist())
    form, found_shape, flat = read(text.encode(), rank=len(shape))
    assert (form, found_shape) == ("instances", shape)
    np.testing.assert_array_equal(flat, numbers.astype(np.float32).ravel())
    assert read(text.replace("], [", ", 1], [", 1).encode()) is None
    assert read(text.replace(",", "", 1).encode()) is None
