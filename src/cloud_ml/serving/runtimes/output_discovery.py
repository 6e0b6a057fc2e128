"""The outputs of a model whose ``signature.json`` names its inputs only: found out by runs with
zeros.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from cloud_ml.serving import dtypes
from cloud_ml.serving.errors import ModelFailed
from cloud_ml.serving.runtimes.base import Array
from cloud_ml.serving.signatures import Signature, TensorSpec

Run = Callable[[Signature, Sequence[Array]], Mapping[str, Array]]
"""Runs a model: arrays in the order of the inputs, and back by the names of the outputs."""
_SIZES = (1, 2)
"""Sizes of open dimensions in the two runs: a dimension of an output that differs between them
is open, too.
"""


def complete_outputs(signatures: Mapping[str, Signature], run: Run) -> dict[str, Signature]:
    """The signatures, each with outputs.

    Raises:
        ModelFailed: The model cannot be run with zeros, or gives what no protocol carries.
    """
    return {
        name: each if each.outputs else _complete_signature(each, run)
        for name, each in signatures.items()
    }


def _complete_signature(signature: Signature, run: Run) -> Signature:
    try:
        first, second = (
            run(signature, [_zeros(spec, size) for spec in signature.inputs]) for size in _SIZES
        )
        outputs = [_spec(name, first[name], second[name]) for name in first.keys() & second.keys()]
    except Exception as error:
        raise ModelFailed(
            f"signature.json: {signature.name} has no outputs, and a run with zeros to find them "
            f"out failed: {type(error).__name__}: {error}"[:2000]
        ) from error
    if not first or first.keys() != second.keys():
        raise ModelFailed(
            f"signature.json: {signature.name}: outputs are missing, and two runs gave "
            "different ones"
        )
    order = list(first)
    return replace(
        signature, outputs=tuple(sorted(outputs, key=lambda spec: order.index(spec.name)))
    )


def _zeros(spec: TensorSpec, size: int) -> Array:
    shape = [size if each < 0 else each for each in spec.shape or ()]
    return (
        np.full(shape, "", object)
        if spec.dtype is dtypes.STRING
        else np.zeros(shape, spec.dtype.numpy)
    )


def _spec(name: str, first: Array, second: Array) -> TensorSpec:
    shape = tuple(
        -1 if one != other else one for one, other in zip(first.shape, second.shape, strict=False)
    )
    rank_is_open = len(first.shape) != len(second.shape)
    return TensorSpec(name, dtypes.of_array(first), None if rank_is_open else shape, inner=name)
