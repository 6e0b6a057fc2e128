"""An answer holds the rows of its caller, as the library reads them, for every type and any
callers of a batch.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_ml.serving import dtypes
from cloud_ml.serving.batching import Outcome
from cloud_ml.serving.codecs import predict_answer, tensor_proto
from cloud_ml.serving.codecs.predict_answer import PredictAnswer
from cloud_ml.serving.dtypes import DType
from cloud_ml.serving.protos import message
from cloud_ml.serving.runtimes.base import Array
from cloud_ml.serving.signatures import Signature, TensorSpec

SPEC = message("tensorflow.serving.ModelSpec")(name="m").SerializeToString()


def values(dtype: DType, shape: tuple[int, ...], seed: int) -> Array:
    random = np.random.default_rng(seed)
    if dtype is dtypes.STRING:
        made = np.empty(shape, object)
        made.ravel()[:] = [random.bytes(int(size)) for size in random.integers(0, 200, made.size)]
        return made
    if dtype is dtypes.BOOL:
        return random.integers(0, 2, shape).astype(bool)
    wide = np.iinfo(dtype.name) if dtype.numpy.kind in "iu" else None
    if wide is not None and seed % 2:
        return random.integers(wide.min, wide.max, shape, dtype.numpy, endpoint=True)
    return random.integers(0, 100, shape).astype(dtype.numpy)


def read(parts: tuple[bytes, ...], size: int) -> dict[str, Array]:
    data = b"".join(parts)
    assert len(data) == size
    answer = message("tensorflow.serving.PredictResponse").FromString(data)
    assert answer.model_spec.name == "m"
    return {name: tensor_proto.decode(name, proto) for name, proto in answer.outputs.items()}


def signature_of(given: list[DType], shapes: list[tuple[int, ...] | None]) -> Signature:
    outputs = tuple(
        TensorSpec(f"o{place}", *each) for place, each in enumerate(zip(given, shapes, strict=True))
    )
    return Signature("s", (TensorSpec("x", dtypes.FLOAT, (-1,)),), outputs)


@given(
    st.lists(st.tuples(st.sampled_from(dtypes.ALL), st.booleans()), min_size=1, max_size=3),
    st.lists(st.integers(0, 40), min_size=1, max_size=4),
    st.sampled_from([(), (1,), (3,), (2, 2)]),
    st.integers(0, 1000),
)
def test_each_caller_of_a_batch_reads_its_own_rows(
    outputs: list[tuple[DType, bool]], callers: list[int], tail: tuple[int, ...], seed: int
) -> None:
    total = sum(callers)
    arrays = [
        values(dtype, (total, *tail), seed + place) for place, (dtype, _) in enumerate(outputs)
    ]
    shapes = [(-1, *tail) if known else (-1,) * (len(tail) + 1) for _, known in outputs]
    answer = PredictAnswer(
        signature_of([dtype for dtype, _ in outputs], shapes), range(len(outputs)), SPEC
    )
    outcome, first = Outcome(arrays), 0
    for rows in callers:
        got = read(*answer.parts(outcome, first, rows))
        for place, array in enumerate(arrays):
            expected = array[first : first + rows]
            assert got[f"o{place}"].shape == expected.shape
            assert got[f"o{place}"].tolist() == expected.tolist()
        first += rows


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_an_output_without_rows_is_whole(dtype: DType) -> None:
    signature = signature_of([dtype], [(2,)])
    array = values(dtype, (2,), 1)
    got = read(*PredictAnswer(signature, (0,), SPEC).parts(Outcome([array]), 0, 1))
    assert got["o0"].tolist() == array.tolist()


def test_there_is_a_bound_to_the_beginnings_that_are_kept() -> None:
    answer = PredictAnswer(signature_of([dtypes.STRING], [(-1,)]), (0,), SPEC)
    for size in range(2 * predict_answer.KEPT_LEADS):
        array = np.empty(1, object)
        array[0] = b"x" * size
        assert read(*answer.parts(Outcome([array]), 0, 1))["o0"].tolist() == [b"x" * size]
    assert len(answer._layouts[1].leads) <= predict_answer.KEPT_LEADS
    for rows in range(1, 2 * predict_answer.KEPT):
        array = np.empty(rows, object)
        array[:] = b""
        answer.parts(Outcome([array]), 0, rows)
    assert len(answer._layouts) <= predict_answer.KEPT
