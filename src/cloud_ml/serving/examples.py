"""Classify and Regress: ``tf.Example`` records in, classes or values out."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cloud_ml.serving import dtypes
from cloud_ml.serving.batching import Outcome
from cloud_ml.serving.errors import BadRequest, ModelFailed
from cloud_ml.serving.protos import message
from cloud_ml.serving.runtimes.base import Array
from cloud_ml.serving.signatures import CLASSIFY, REGRESS, Signature, TensorSpec

CLASSES, SCORES, OUTPUTS = "classes", "scores", "outputs"
"""The names that TensorFlow gives the outputs of such signatures."""


def examples_of(input_message: Any) -> list[bytes]:
    """The serialized examples of an ``Input``; a context is part of each of them.

    Raises:
        BadRequest: where there is none.
    """
    kind = input_message.WhichOneof("kind")
    if kind == "example_list":
        examples = [each.SerializeToString() for each in input_message.example_list.examples]
    elif kind == "example_list_with_context":
        with_context = input_message.example_list_with_context
        context = with_context.context.SerializeToString()
        examples = [
            context + each.SerializeToString() for each in with_context.examples
        ]  # later fields win, maps are merged
        examples = [_merge_messages(each) for each in examples]
    else:
        examples = []
    if not examples:
        raise BadRequest("the request has no examples: fill input.example_list.examples")
    return examples


def _merge_messages(twice: bytes) -> bytes:
    return bytes(
        message("tensorflow.Example").FromString(twice).SerializeToString(deterministic=True)
    )


def as_tensor(examples: Sequence[bytes]) -> Array:
    """The one input of such a signature."""
    made = np.empty(len(examples), object)
    made[:] = examples
    return made


def tensors(signature: Signature, examples: Sequence[bytes]) -> list[Array]:
    """The inputs of a signature: the examples as they are where it takes one string, or else
    features by name.

    Raises:
        BadRequest: for features that the signature does not take.
    """
    if [spec.dtype for spec in signature.inputs] == [dtypes.STRING]:
        arrays = [as_tensor(examples)]
    else:
        features = [
            message("tensorflow.Example").FromString(each).features.feature for each in examples
        ]
        for each in features:
            signature.check_names(each)
        arrays = [
            _column(signature, spec, [each[spec.name] for each in features])
            for spec in signature.inputs
        ]
    for spec, array in zip(signature.inputs, arrays, strict=True):
        signature.check_tensor(spec, spec.dtype, array.shape)
    return arrays


def _column(signature: Signature, spec: TensorSpec, features: Sequence[Any]) -> Array:
    """One input: a row for each example, of the shape that the signature has."""
    kinds = ("bytes_list",) if spec.dtype is dtypes.STRING else ("int64_list", "float_list")
    if spec.dtype.numpy.kind in "iub":
        kinds = ("int64_list",)
    rows = []
    for place, feature in enumerate(features):
        kind = feature.WhichOneof("kind")
        if kind not in kinds:
            raise BadRequest(
                f"feature {spec.name!r} of example {place} is {kind}, not "
                f"{' or '.join(kinds)}: {signature}"
            )
        rows.append(getattr(feature, kind).value)
    tail = list((spec.shape or (-1, -1))[1:])
    sizes = sorted({len(row) for row in rows})
    if len(sizes) != 1:
        raise BadRequest(
            f"examples differ in how many values feature {spec.name!r} has: {sizes}: {signature}"
        )
    made = np.empty((len(rows), sizes[0]), spec.dtype.numpy)
    try:
        for place, row in enumerate(rows):
            made[place] = row
        return made.reshape([len(rows), *tail])
    except (ValueError, OverflowError) as error:
        raise BadRequest(
            f"feature {spec.name!r} of {sizes[0]} values does not fit: {error}: {signature}"
        ) from error


def check(signature: Signature, method: str) -> None:
    """Refuse a signature that does not do this.

    Raises:
        BadRequest: with what the method needs.
    """
    names = {spec.name for spec in signature.outputs}
    gives = names & {CLASSES, SCORES} if method == CLASSIFY else OUTPUTS in names or len(names) == 1
    if not gives or (signature.method != method and signature.method in (CLASSIFY, REGRESS)):
        outputs = f"{CLASSES!r} or {SCORES!r}" if method == CLASSIFY else repr(OUTPUTS)
        raise BadRequest(f"{method} needs a signature with an output {outputs}: {signature}")


def classifications(
    signature: Signature, outcome: Outcome, first: int, rows: int
) -> list[list[tuple[str, float]]]:
    """Labels with scores, for each row; a label is empty and a score 0 where the model does not
    tell it.
    """
    classes, scores = (_output(signature, outcome, name, first, rows) for name in (CLASSES, SCORES))
    one = classes if classes is not None else scores
    if (
        one is None
        or any(each is not None and each.shape != one.shape for each in (classes, scores))
        or one.ndim != 2
    ):
        raise ModelFailed(f"classes and scores must be of one shape [rows, classes]: {signature}")
    labels = (
        [[_text(each) for each in row] for row in classes]
        if classes is not None
        else [[""] * one.shape[1]] * rows
    )
    values = scores.astype(float).tolist() if scores is not None else [[0.0] * one.shape[1]] * rows
    return [list(zip(*pair, strict=True)) for pair in zip(labels, values, strict=True)]


def regressions(signature: Signature, outcome: Outcome, first: int, rows: int) -> list[float]:
    """A value for each row."""
    only = signature.outputs[0].name if len(signature.outputs) == 1 else OUTPUTS
    values = _output(signature, outcome, only, first, rows)
    if values is None or values.shape not in ((rows,), (rows, 1)):
        shape = list(values.shape) if values is not None else None
        raise ModelFailed(
            f"outputs must be one number for each of {rows} rows, not of shape {shape}: {signature}"
        )
    numbers: list[float] = values.astype(float).ravel().tolist()
    return numbers


def _output(
    signature: Signature, outcome: Outcome, name: str, first: int, rows: int
) -> Array | None:
    for spec, array in zip(signature.outputs, outcome.arrays, strict=True):
        if spec.name == name:
            return array[first : first + rows] if signature.batched else array
    return None


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
