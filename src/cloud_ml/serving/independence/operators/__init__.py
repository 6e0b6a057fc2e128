"""What operators make of tensors whose rows are apart, whatever the framework calls them.

Each function takes what is known of the inputs and returns what is known of the output. It raises
``NotIndependent`` unless the operator keeps rows apart for every value that the inputs may have.
"""

from cloud_ml.serving.independence.operators.axes import along, reduce, transpose, transpose_matrix
from cloud_ml.serving.independence.operators.broadcasting import broadcast_to, elementwise
from cloud_ml.serving.independence.operators.checks import axis_of, check_output, plain
from cloud_ml.serving.independence.operators.parts import choose_along, concat, gather, part
from cloud_ml.serving.independence.operators.products import convolve, einsum, matmul, pool
from cloud_ml.serving.independence.operators.shapes import (
    expand_dims,
    fill_shape,
    flatten,
    reshape,
    squeeze,
)
from cloud_ml.serving.independence.operators.sizes import arithmetic, cast

__all__ = [
    "along",
    "arithmetic",
    "axis_of",
    "broadcast_to",
    "cast",
    "check_output",
    "choose_along",
    "concat",
    "convolve",
    "einsum",
    "elementwise",
    "expand_dims",
    "fill_shape",
    "flatten",
    "gather",
    "matmul",
    "part",
    "plain",
    "pool",
    "reduce",
    "reshape",
    "squeeze",
    "transpose",
    "transpose_matrix",
]
