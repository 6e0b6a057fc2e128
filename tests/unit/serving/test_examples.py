"""Examples in, classes and values out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cloud_ml.serving import dtypes, examples
from cloud_ml.serving.batching import Outcome
from cloud_ml.serving.errors import BadRequest, ModelFailed
from cloud_ml.serving.protos import message
from cloud_ml.serving.signatures import CLASSIFY, PREDICT, REGRESS, Signature, TensorSpec

CLASSES = TensorSpec("classes", dtypes.STRING, (-1, 2))
SCORES = TensorSpec("scores", dtypes.FLOAT, (-1, 2))
OUTPUTS = TensorSpec("outputs", dtypes.FLOAT, (-1, 1))
GIVEN = (TensorSpec("inputs", dtypes.STRING, (-1,)),)
LABELS, VALUES = (
    np.array([[b"a", b"b"]] * 3, object),
    np.array([[0, 1], [2, 3], [4, 5]], np.float32),
)


def signature(*outputs: TensorSpec, method: str = PREDICT) -> Signature:
    return Signature("s", GIVEN, outputs, method)


def input_message(*values: float, context: float | None = None) -> Any:
    made = message("tensorflow.serving.Input")()
    example_list = made.example_list if context is None else made.example_list_with_context
    if context is not None:
        for name in ("x", "c"):
            example_list.context.features.feature[name].float_list.value.append(context)
    for value in values:
        example_list.examples.add().features.feature["x"].float_list.value.append(value)
    return made


def features(data: bytes) -> dict[str, float]:
    values = message("tensorflow.Example").FromString(data).features.feature
    return {name: values[name].float_list.value[0] for name in values}


def test_a_context_is_part_of_each_example_which_knows_better() -> None:
    assert [features(each) for each in examples.examples_of(input_message(1, 2))] == [
        {"x": 1},
        {"x": 2},
    ]
    assert [features(each) for each in examples.examples_of(input_message(1, 2, context=7))] == [
        {"x": 1, "c": 7},
        {"x": 2, "c": 7},
    ]
    with pytest.raises(BadRequest, match="has no examples"):
        examples.examples_of(input_message())


def test_rows_of_a_caller_become_classes() -> None:
    both = examples.classifications(signature(CLASSES, SCORES), Outcome([LABELS, VALUES]), 1, 2)
    assert both == [[("a", 2.0), ("b", 3.0)], [("a", 4.0), ("b", 5.0)]]
    assert examples.classifications(signature(SCORES), Outcome([VALUES]), 0, 1) == [
        [("", 0.0), ("", 1.0)]
    ]
    assert examples.classifications(signature(CLASSES), Outcome([LABELS]), 0, 1) == [
        [("a", 0.0), ("b", 0.0)]
    ]


def test_rows_of_a_caller_become_values() -> None:
    assert examples.regressions(signature(OUTPUTS), Outcome([VALUES[:, :1]]), 1, 2) == [2.0, 4.0]


def test_answers_that_do_not_fit_are_the_models_fault() -> None:
    with pytest.raises(ModelFailed, match="of one shape"):
        examples.classifications(signature(CLASSES, SCORES), Outcome([LABELS, VALUES[:, :1]]), 0, 3)
    with pytest.raises(ModelFailed, match="one number for each of 3 rows"):
        examples.regressions(signature(OUTPUTS), Outcome([VALUES]), 0, 3)


@pytest.mark.parametrize(
    ("outputs", "method", "requested_method", "fine"),
    [
        ((SCORES,), CLASSIFY, CLASSIFY, True),
        ((SCORES,), PREDICT, CLASSIFY, True),
        ((OUTPUTS,), REGRESS, REGRESS, True),
        ((OUTPUTS,), PREDICT, CLASSIFY, False),
        ((SCORES, OUTPUTS), CLASSIFY, REGRESS, False),
    ],
)
def test_what_a_signature_can_be_asked_for(
    outputs: tuple[TensorSpec, ...], method: str, requested_method: str, fine: bool
) -> None:
    if fine:
        examples.check(signature(*outputs, method=method), requested_method)
    else:
        with pytest.raises(BadRequest, match="needs a signature with"):
            examples.check(signature(*outputs, method=method), requested_method)
