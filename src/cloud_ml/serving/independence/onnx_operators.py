"""ONNX's operators that keep rows apart, with the conditions under which they do. What is not here
is not trusted.

https://onnx.ai/onnx/operators/; the functions take a node and what is known of its inputs.
"""

from cloud_ml.serving.independence import operators as op
from cloud_ml.serving.independence.onnx_file import Node
from cloud_ml.serving.independence.onnx_inputs import (
    Handler,
    Inputs,
    axes_of,
    first,
    given_inputs,
    integer_of,
    integers_of,
    require_input,
)
from cloud_ml.serving.independence.onnx_tables import (
    each_feature,
    extractor,
    features,
    normalizer,
    regressor,
    table_rows,
)
from cloud_ml.serving.independence.onnx_windows import (
    convolution,
    global_pool,
    pool,
    transposed_convolution,
)
from cloud_ml.serving.independence.tensor_info import (
    CONSTANT,
    UNKNOWN,
    Dimension,
    NotIndependent,
    TensorInfo,
    constant,
    names,
    product,
    tensor,
    vector,
)

OPERATOR_SETS = {"": (9, 28), "ai.onnx.ml": (1, 5)}
"""The oldest and newest version of each set whose operators mean what is said here."""

ELEMENTWISE = names(
    """
    Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor
    Ceil Celu Cos Cosh Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish
    IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Neg Not Or PRelu Pow Reciprocal
    Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh
    ThresholdedRelu Where Xor Binarizer LabelEncoder
    """
)
_REDUCTIONS = names(
    """
    ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceSum
    ReduceSumSquare
    """
)
_SIZES = {"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div"}


def _elementwise(_node: Node, infos: Inputs) -> TensorInfo:
    return op.elementwise(given_inputs(infos))


def _arithmetic(node: Node, infos: Inputs) -> TensorInfo:
    there = given_inputs(infos)
    sizes = op.arithmetic(_SIZES[node.kind], there)
    return sizes if sizes is not None else op.elementwise(there)


def _cast(node: Node, infos: Inputs) -> TensorInfo:
    one = first(infos)
    to_integers = node.attributes.get("to") in (6, 7)  # INT32, INT64
    return op.cast(one) if to_integers else op.elementwise([one])


def _same(_node: Node, infos: Inputs) -> TensorInfo:
    return first(infos)


def _shaped_like_first(_node: Node, infos: Inputs) -> TensorInfo:
    """Clip, CastLike: the other inputs are parameters and do not change the shape."""
    op.elementwise(given_inputs(infos))
    return op.elementwise([first(infos)])


def _dropout(node: Node, infos: Inputs) -> TensorInfo:
    if len(infos) > 2 and infos[2] is not None and infos[2].integer() != 0:
        raise NotIndependent("it is in training mode")
    return op.elementwise([first(infos)])


def _matmul(_node: Node, infos: Inputs) -> TensorInfo:
    return op.matmul(require_input(infos, 0), require_input(infos, 1))


def _gemm(node: Node, infos: Inputs) -> TensorInfo:
    one, two = require_input(infos, 0), require_input(infos, 1)
    one = op.transpose_matrix(one) if integer_of(node, "transA", 0) else one
    two = op.transpose_matrix(two) if integer_of(node, "transB", 0) else two
    made = op.matmul(one, two)
    bias = infos[2] if len(infos) > 2 else None
    return made if bias is None else op.elementwise([made, bias])


def _reduce(node: Node, infos: Inputs) -> TensorInfo:
    axes = axes_of(node, infos)
    if not axes and integer_of(node, "noop_with_empty_axes", 0):
        return op.elementwise([first(infos)])
    return op.reduce(first(infos), axes or None, keep=bool(integer_of(node, "keepdims", 1)))


def _reduce_product(node: Node, infos: Inputs) -> TensorInfo:
    one, axes = first(infos), axes_of(node, infos)
    # Without axes it is then the identity, not a product of everything.
    nothing = not axes and integer_of(node, "noop_with_empty_axes", 0)
    if one.values is not None and one.rank == 1 and axes in (None, [], [0], [-1]) and not nothing:
        made = product(one.values)
        if made.fits:
            return TensorInfo((Dimension(1),) if integer_of(node, "keepdims", 1) else (), (made,))
    return _reduce(node, infos)


def _choose_one(node: Node, infos: Inputs) -> TensorInfo:
    """ArgMax, ArgMin."""
    return op.reduce(
        first(infos), [integer_of(node, "axis", 0)], keep=bool(integer_of(node, "keepdims", 1))
    )


def _softmax(node: Node, infos: Inputs) -> TensorInfo:
    """Before version 13 it takes all dimensions from the axis on together; the axis decides
    either way.
    """
    default = -1 if node.attributes.get(OPSET, 13) >= 13 else 1
    one = first(infos)
    if not one.rows:
        return op.elementwise([one])
    axis = integer_of(node, "axis", default)
    return op.along(one, axis if axis < 0 or axis < one.rank else -1)


OPSET = "opset of the graph"
"""A name under which nodes whose meaning changed are told the version of their set."""


def _along(node: Node, infos: Inputs) -> TensorInfo:
    return op.along(first(infos), integer_of(node, "axis", -1))


def _cumulative(_node: Node, infos: Inputs) -> TensorInfo:
    return op.along(first(infos), require_input(infos, 1).integer())


def _infer_layer_normalization(node: Node, infos: Inputs) -> TensorInfo:
    """LayerNormalization: all axes from one on."""
    made = op.along(first(infos), integer_of(node, "axis", -1))
    # For its checks only: scale and bias do not change the shape, whatever their rank.
    op.elementwise([made, *given_inputs(infos[1:])])
    return made


def _each_image(_node: Node, infos: Inputs) -> TensorInfo:
    """Normalisation of each row by itself: rows, channels and at least one more dimension."""
    one = first(infos)
    op.plain(*given_inputs(infos))
    if one.rank < 3 or any(each.rows for each in given_inputs(infos[1:])):
        raise NotIndependent("its scale is made of rows, or there are no channels")
    return TensorInfo(one.shape)


def _batch_normalization(node: Node, infos: Inputs) -> TensorInfo:
    one = first(infos)
    op.plain(*given_inputs(infos))
    # Before version 14 there is no attribute: further outputs are what says that it trains.
    if integer_of(node, "training_mode", 0) or any(node.outputs[1:]):
        raise NotIndependent("it is in training mode, which normalises over the rows")
    if one.rank < 2 or any(each.rows for each in given_inputs(infos[1:])):
        raise NotIndependent("its mean and variance are made of rows")
    return TensorInfo(one.shape)


def _transpose(node: Node, infos: Inputs) -> TensorInfo:
    one = first(infos)
    if one.shape is None:
        return op.elementwise([one])
    return op.transpose(one, integers_of(node, "perm", range(one.rank)[::-1]))


def _reshape(node: Node, infos: Inputs) -> TensorInfo:
    one, shape = require_input(infos, 0), require_input(infos, 1)
    if shape.values is None:
        raise NotIndependent("a shape is not known")
    if one.values is not None and list(shape.values) in (
        [Dimension(-1)],
        [Dimension(len(one.values))],
    ):
        return vector(one.values)
    return op.reshape(one, shape.values, zero_copies=not integer_of(node, "allowzero", 0))


def _flatten(node: Node, infos: Inputs) -> TensorInfo:
    return op.flatten(first(infos), integer_of(node, "axis", 1))


def _concat(node: Node, infos: Inputs) -> TensorInfo:
    return op.concat(given_inputs(infos), integer_of(node, "axis", 0))


def _split(node: Node, infos: Inputs) -> list[TensorInfo]:
    one, axis = first(infos), integer_of(node, "axis", 0)
    sizes = integers_of(node, "split") or (
        list(infos[1].integers()) if len(infos) > 1 and infos[1] else []
    )
    known = [Dimension(size) for size in sizes] or [UNKNOWN] * len(node.outputs)
    return [op.part(one, axis, size) for size in known]


def _slice(node: Node, infos: Inputs) -> TensorInfo:
    one = first(infos)
    if "starts" in node.attributes:  # before version 10
        starts, ends = integers_of(node, "starts"), integers_of(node, "ends")
        axes, steps = integers_of(node, "axes", range(len(starts))), [1] * len(starts)
    else:
        starts, ends = (
            list(require_input(infos, 1).integers()),
            list(require_input(infos, 2).integers()),
        )
        axes = axes_of(node, infos, 3) or list(range(len(starts)))
        steps = (
            list(infos[4].integers())
            if len(infos) > 4 and infos[4] is not None
            else [1] * len(starts)
        )
    # Backwards, ONNX limits the bounds otherwise than Python does.
    if one.values is not None and one.rank == 1 and axes == [0] and steps[0] > 0:
        return vector(one.values[starts[0] : ends[0] : steps[0]])
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        # The largest integer stands for the end of an axis whose size is open; exporters write that
        # of 32 or of 64 bits.
        everything = start == 0 and end >= (1 << 31) - 1 and step == 1
        one = op.elementwise([one]) if everything else op.part(one, axis)
    return one


def _expand_dims(node: Node, infos: Inputs) -> TensorInfo:
    return op.expand_dims(first(infos), axes_of(node, infos) or [])


def _squeeze(node: Node, infos: Inputs) -> TensorInfo:
    return op.squeeze(first(infos), axes_of(node, infos) or [])


def _expand(_node: Node, infos: Inputs) -> TensorInfo:
    shape = require_input(infos, 1).values
    if shape is None:
        raise NotIndependent("a shape is not known")
    return op.broadcast_to(first(infos), shape)


def _tile(_node: Node, infos: Inputs) -> TensorInfo:
    one, times = first(infos), require_input(infos, 1).integers()
    op.plain(one)
    if not one.rows:
        return CONSTANT
    if times[0] != 1:
        raise NotIndependent("it repeats the rows")
    return tensor([(one.shape or ())[0], *[UNKNOWN] * (one.rank - 1)])


def _pad(node: Node, infos: Inputs) -> TensorInfo:
    one = first(infos)
    op.plain(one)
    if "pads" in node.attributes:
        pads = integers_of(node, "pads")
    else:
        pads = list(require_input(infos, 1).integers())
        if len(infos) > 3 and infos[3] is not None:
            raise NotIndependent("the axes of the padding are an input")
    if not one.rows:
        return CONSTANT
    # First come the beginnings of all axes, then their ends.
    if len(pads) != 2 * one.rank or pads[0] or pads[one.rank]:
        raise NotIndependent("it puts something before or behind the rows")
    sizes = zip(one.shape or (), pads, pads[one.rank :], strict=False)
    padded = [
        Dimension(None if size.factor is None else size.factor + low + high)
        for size, low, high in sizes
    ]
    return tensor([(one.shape or ())[0], *padded[1:]])


def _shape(node: Node, infos: Inputs) -> TensorInfo:
    one = first(infos)
    if one.shape is None:
        return CONSTANT
    end = integer_of(node, "end", 0) if "end" in node.attributes else None
    return vector(one.shape[integer_of(node, "start", 0) : end])


def _size(_node: Node, infos: Inputs) -> TensorInfo:
    shape = first(infos).shape
    return CONSTANT if shape is None else TensorInfo((), (product(shape),))


def _constant(node: Node, _facts: Inputs) -> TensorInfo:
    # Of several values, readers may take one or another.
    if len(node.attributes.keys() - {OPSET}) != 1:
        raise NotIndependent("it has more than one value, or none")
    value = node.attributes.get(
        "value", node.attributes.get("value_int", node.attributes.get("value_ints"))
    )
    if isinstance(value, TensorInfo):
        return value
    if isinstance(value, int):
        return constant((), (value,))
    if isinstance(value, list):
        return constant((len(value),), value)
    return constant(()) if "value_float" in node.attributes else CONSTANT


def _constant_of_shape(_node: Node, infos: Inputs) -> TensorInfo:
    return op.fill_shape(first(infos)) if first(infos).values is not None else CONSTANT


def _gather(node: Node, infos: Inputs) -> TensorInfo:
    return op.gather(require_input(infos, 0), require_input(infos, 1), integer_of(node, "axis", 0))


def _gather_elements(node: Node, infos: Inputs) -> TensorInfo:
    return op.choose_along(
        require_input(infos, 0), require_input(infos, 1), integer_of(node, "axis", 0)
    )


def _top_k(node: Node, infos: Inputs) -> list[TensorInfo]:
    return [op.part(first(infos), integer_of(node, "axis", -1))] * 2


def _one_hot(node: Node, infos: Inputs) -> TensorInfo:
    one = first(infos)
    op.plain(*given_inputs(infos))
    if any(info.rows for info in given_inputs(infos[1:])):
        raise NotIndependent("its depth or values are made of rows")
    if not one.rows:
        return CONSTANT
    place = op.axis_of(integer_of(node, "axis", -1), one.rank + 1)
    shape = list(one.shape or ())
    return tensor([*shape[:place], UNKNOWN, *shape[place:]])


def _einsum(node: Node, infos: Inputs) -> TensorInfo:
    return op.einsum(str(node.attributes.get("equation", "")), given_inputs(infos))


def _depth(node: Node, infos: Inputs) -> TensorInfo:
    """SpaceToDepth, DepthToSpace: within each row."""
    return (
        op.pool(first(infos), [UNKNOWN, UNKNOWN], channels=-1)
        if first(infos).rank == 4
        else _refuse(node, infos)
    )


def _refuse(node: Node, _facts: Inputs) -> TensorInfo:
    raise NotIndependent(f"{node.kind} is not looked at with such inputs")


def _quantize(node: Node, infos: Inputs) -> TensorInfo:
    """With a scale that is a constant: one number, or one for each channel."""
    one, scales = first(infos), given_inputs(infos[1:])
    op.plain(*given_inputs(infos))
    if any(info.rank > 1 for info in scales):
        raise NotIndependent("its scale is neither one number nor one for each channel")
    if (
        one.rows
        and any(info.rank for info in scales)
        and op.axis_of(integer_of(node, "axis", 1), one.rank) == 0
    ):
        raise NotIndependent("it has a scale for each of the rows")
    return TensorInfo(one.shape)


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **dict.fromkeys(_REDUCTIONS, _reduce),
    **dict.fromkeys(_SIZES, _arithmetic),
    "ReduceProd": _reduce_product,
    "ArgMax": _choose_one,
    "ArgMin": _choose_one,
    "Cast": _cast,
    "CastLike": _shaped_like_first,
    "Clip": _shaped_like_first,
    "Identity": _same,
    "Dropout": _dropout,
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Einsum": _einsum,
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "Hardmax": _softmax,
    "LpNormalization": _along,
    "CumSum": _cumulative,
    "LayerNormalization": _infer_layer_normalization,
    "RMSNormalization": _infer_layer_normalization,
    "InstanceNormalization": _each_image,
    "GroupNormalization": _each_image,
    "BatchNormalization": _batch_normalization,
    "LRN": _each_image,
    "Transpose": _transpose,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Unsqueeze": _expand_dims,
    "Squeeze": _squeeze,
    "Expand": _expand,
    "Tile": _tile,
    "Pad": _pad,
    "Shape": _shape,
    "Size": _size,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "TopK": _top_k,
    "OneHot": _one_hot,
    "Conv": convolution,
    "ConvTranspose": transposed_convolution,
    "MaxPool": pool,
    "AveragePool": pool,
    "LpPool": pool,
    "GlobalAveragePool": global_pool,
    "GlobalMaxPool": global_pool,
    "GlobalLpPool": global_pool,
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _quantize,
    "LinearClassifier": table_rows,
    "TreeEnsembleClassifier": table_rows,
    "SVMClassifier": table_rows,
    "LinearRegressor": regressor,
    "TreeEnsembleRegressor": regressor,
    "SVMRegressor": regressor,
    "Scaler": each_feature,
    "Imputer": each_feature,
    "FeatureVectorizer": features,
    "Normalizer": normalizer,
    "ArrayFeatureExtractor": extractor,
}
"""Operator → what is known of its outputs."""

SEVERAL_WITH_ROWS = (
    ELEMENTWISE
    | set(_SIZES)
    | {"MatMul", "Gemm", "Einsum", "Concat", "Gather", "GatherElements", "FeatureVectorizer"}
)
"""Operators of which other inputs than the first may have rows."""
TAKES_SIZES = frozenset({"Reshape", "Expand", "Concat", *_SIZES})
"""Operators of which other inputs than the first may be computed from the number of rows."""
