"""TensorFlow's operations that keep rows apart, with the conditions under which they do. No other
is trusted.

https://www.tensorflow.org/api_docs/python/tf/raw_ops; the functions take a node and what is known
of its inputs.
"""

from collections.abc import Callable, Sequence

from cloud_ml.serving.independence import operators as op
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
from cloud_ml.serving.independence.tensorflow_attributes import integer, integers
from cloud_ml.serving.independence.tensorflow_file import Node
from cloud_ml.serving.independence.tensorflow_parts import (
    concat,
    gather,
    pack,
    split,
    split_sizes,
    strided_slice,
    unpack,
)
from cloud_ml.serving.independence.tensorflow_windows import convolve, pool, resize

Handler = Callable[[Node, Sequence[TensorInfo]], TensorInfo | list[TensorInfo]]

# Not ``Select``: its condition may be a vector, which it pairs with the first dimension and not
# with the last. ``SelectV2`` aligns as all others do.
ELEMENTWISE = names(
    """
    Abs Acos Acosh Add AddV2 AsString Asin Asinh Atan Atan2 Atanh Ceil Cos Cosh Div DivNoNan Elu Equal Erf
    Erfc Exp Expm1 Floor FloorDiv FloorMod Greater GreaterEqual Inv IsFinite IsInf IsNan LeakyRelu Less LessEqual Log
    Log1p LogicalAnd LogicalNot LogicalOr Maximum Minimum Mod Mul MulNoNan Neg NotEqual OnesLike Pow RealDiv Reciprocal
    Relu Relu6 Rint Round Rsqrt SelectV2 Selu Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Square SquaredDifference
    StringLower StringStrip StringToHashBucketFast StringToNumber StringUpper Sub Tan Tanh TruncateDiv Xdivy Xlogy
    ZerosLike
    """
)
_REDUCTIONS = names("All Any Max Mean Min Sum EuclideanNorm")
_SIZES = {"Add": "add", "AddV2": "add", "Sub": "sub", "Mul": "mul", "FloorDiv": "div"}


def _elementwise(_node: Node, infos: Sequence[TensorInfo]) -> TensorInfo:
    return op.elementwise(infos)


def _clip(_node: Node, infos: Sequence[TensorInfo]) -> TensorInfo:
    """Limits do not change the shape."""
    op.elementwise(infos)
    return op.elementwise(infos[:1])


def _arithmetic(node: Node, infos: Sequence[TensorInfo]) -> TensorInfo:
    sizes = op.arithmetic(_SIZES[node.kind], infos)
    return sizes if sizes is not None else op.elementwise(infos)


def _same(_node: Node, infos: Sequence[TensorInfo]) -> TensorInfo:
    return infos[0]


def _all_the_same(_node: Node, infos: Sequence[TensorInfo]) -> list[TensorInfo]:
    return list(infos)


def _cast(node: Node, infos: Sequence[TensorInfo]) -> TensorInfo:
    to_integers = node.attributes.get("DstT") in (3, 9)  # DT_INT32, DT_INT64
    return op.cast(infos[0]) if to_integers else op.elementwise(infos)


def _constant(node: Node, _facts: Sequence[TensorInfo]) -> TensorInfo:
    value = node.attributes.get("value")
    return value if isinstance(value, TensorInfo) else CONSTANT


def _variable(node: Node, _facts: Sequence[TensorInfo]) -> TensorInfo:
    shape = node.attributes.get("shape")
    return shape if isinstance(shape, TensorInfo) else CONSTANT


def _nothing(_node: Node, _facts: Sequence[TensorInfo]) -> list[TensorInfo]:
    return []


def _table(_node: Node, _facts: Sequence[TensorInfo]) -> TensorInfo:
    return constant(())


def _look_up(_node: Node, infos: Sequence[TensorInfo]) -> TensorInfo:
    return (
        op.elementwise([infos[1], infos[2]])
        if infos[2].shape == ()
        else _never("it has a default for each place")
    )


def _never(reason: str) -> TensorInfo:
    raise NotIndependent(reason)


def _matmul(node: Node, infos: Sequence[TensorInfo]) -> TensorInfo:
    one, two = infos[0], infos[1]
    one = (
        op.transpose_matrix(one) if integer(node, "transpose_a") or integer(node, "adj_x") else one
    )
    two = (
        op.transpose_matrix(two) if integer(node, "transpose_b") or integer(node, "adj_y") else two
    )
    return op.matmul(one, two)


def _bias(_node: Node, infos: Sequence[TensorInfo]) -> TensorInfo:
    """Added to the channels, wherever these are, and never to the first dimension."""
    op.plain(*infos)
    if infos[1].rows or infos[0].rank < 2:
        raise NotIndependent("its bias is made of rows, or there are no channels")
    return TensorInfo(infos[0].shape)


def _reduce(node: Node, infos: Sequence[TensorInfo]) -> TensorInfo:
    return op.reduce(infos[0], infos[1].integers(), keep=bool(integer(node, "keep_dims")))


def _product(node: Node, infos: Sequence[TensorInfo]) -> TensorInfo:
    one = infos[0]
    if one.values is not None and one.rank == 1 and infos[1].integers() in ((0,), (-1,)):
        made = product(one.values)
        if made.fits:
            return TensorInfo((Dimension(1),) if integer(node, "keep_dims") else (), (made,))
    return _reduce(node, infos)


def _choose_one(_node: Node, infos: Sequence[TensorInfo]) -> TensorInfo:
    return op.reduce(infos[0], [infos[1].integer()], keep=False)


def _last_axis(_node: Node, infos: Sequence[TensorInfo]) -> TensorInfo:
    return op.along(infos[0], -1) if infos[0].rows else op.elementwise(infos)


def _along(_node: Node, infos: Sequence[TensorInfo]) -> TensorInfo:
    return op.along(infos[0], infos[1].integer())


def _reshape(_node: Node, infos: Sequence[TensorInfo]) -> TensorInfo:
    one, shape = infos[0], infos[1].values
    if shape is None:
        raise NotIndependent("a shape is not known")
    if one.values is not None and list(shape) in ([Dimension(-1)], [Dimension(len(one.values))]):
        return vector(one.values)
    if one.values is not None and not shape and len(one.values) == 1:
        return TensorInfo((), one.values)
    return op.reshape(one, shape)


def _transpose(_node: Node, infos: Sequence[TensorInfo]) -> TensorInfo:
    return op.transpose(infos[0], infos[1].integers())


def _expand_dims(_node: Node, infos: Sequence[TensorInfo]) -> TensorInfo:
    return op.expand_dims(infos[0], [infos[1].integer()])


def _squeeze(node: Node, infos: Sequence[TensorInfo]) -> TensorInfo:
    return op.squeeze(infos[0], integers(node, "squeeze_dims"))


def _shape(_node: Node, infos: Sequence[TensorInfo]) -> TensorInfo:
    return CONSTANT if infos[0].shape is None else vector(infos[0].shape)


def _size(_node: Node, infos: Sequence[TensorInfo]) -> TensorInfo:
    return CONSTANT if infos[0].shape is None else TensorInfo((), (product(infos[0].shape),))


def _rank(_node: Node, infos: Sequence[TensorInfo]) -> TensorInfo:
    return constant((), (infos[0].rank,))


def _fill(_node: Node, infos: Sequence[TensorInfo]) -> TensorInfo:
    return op.fill_shape(infos[0])


def _range(_node: Node, infos: Sequence[TensorInfo]) -> TensorInfo:
    op.plain(*infos)
    return constant((-1,))


def _broadcast_to(_node: Node, infos: Sequence[TensorInfo]) -> TensorInfo:
    if infos[1].values is None:
        raise NotIndependent("a shape is not known")
    return op.broadcast_to(infos[0], infos[1].values)


def _tile(_node: Node, infos: Sequence[TensorInfo]) -> TensorInfo:
    one, times = infos[0], infos[1].integers()
    op.plain(one)
    if not one.rows:
        return CONSTANT
    if times[0] != 1:
        raise NotIndependent("it repeats the rows")
    return tensor([(one.shape or ())[0], *[UNKNOWN] * (one.rank - 1)])


def _pad(_node: Node, infos: Sequence[TensorInfo]) -> TensorInfo:
    one = infos[0]
    op.plain(*infos)
    if not one.rows:
        return CONSTANT
    pads = infos[1].integers()
    # One pair for each axis, its beginning and its end.
    if len(pads) != 2 * one.rank or pads[0] or pads[1]:
        raise NotIndependent("it puts something before or behind the rows")
    sizes = [
        Dimension(
            None if size.factor is None else size.factor + sum(pads[2 * place : 2 * place + 2])
        )
        for place, size in enumerate(one.shape or ())
    ]
    return tensor([(one.shape or ())[0], *sizes[1:]])


def _one_hot(node: Node, infos: Sequence[TensorInfo]) -> TensorInfo:
    one = infos[0]
    op.plain(*infos)
    if not one.rows:
        return CONSTANT
    place = op.axis_of(integer(node, "axis", -1), one.rank + 1)
    shape = list(one.shape or ())
    return tensor([*shape[:place], UNKNOWN, *shape[place:]])


def _top_k(_node: Node, infos: Sequence[TensorInfo]) -> list[TensorInfo]:
    return [op.part(infos[0], -1)] * 2


def _einsum(node: Node, infos: Sequence[TensorInfo]) -> TensorInfo:
    return op.einsum(str(node.attributes.get("equation", "")), infos)


def _batch_norm(node: Node, infos: Sequence[TensorInfo]) -> TensorInfo:
    op.plain(*infos)
    # The operation's default is training.
    if integer(node, "is_training", 1):
        raise NotIndependent("it is in training mode, which normalises over the rows")
    if infos[0].rank < 2:
        raise NotIndependent("its input has no channels")
    return TensorInfo(infos[0].shape)


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **dict.fromkeys(_REDUCTIONS, _reduce),
    **dict.fromkeys(_SIZES, _arithmetic),
    **dict.fromkeys(
        names("Identity StopGradient PreventGradient Snapshot ReadVariableOp EnsureShape"), _same
    ),
    "ClipByValue": _clip,
    "IdentityN": _all_the_same,
    "Cast": _cast,
    "Const": _constant,
    "NoOp": _nothing,
    "VarHandleOp": _variable,
    "VariableV2": _variable,
    "Variable": _variable,
    "HashTableV2": _table,
    "LookupTableFindV2": _look_up,
    "MatMul": _matmul,
    "BatchMatMul": _matmul,
    "BatchMatMulV2": _matmul,
    "BatchMatMulV3": _matmul,
    "BiasAdd": _bias,
    "Prod": _product,
    "ArgMax": _choose_one,
    "ArgMin": _choose_one,
    "Softmax": _last_axis,
    "LogSoftmax": _last_axis,
    "Cumsum": _along,
    "Einsum": _einsum,
    "Reshape": _reshape,
    "Transpose": _transpose,
    "ExpandDims": _expand_dims,
    "Squeeze": _squeeze,
    "ConcatV2": concat,
    "Pack": pack,
    "Unpack": unpack,
    "Split": split,
    "SplitV": split_sizes,
    "StridedSlice": strided_slice,
    "GatherV2": gather,
    "Gather": gather,
    "ResourceGather": gather,
    "Shape": _shape,
    "Size": _size,
    "Rank": _rank,
    "Fill": _fill,
    "Range": _range,
    "BroadcastTo": _broadcast_to,
    "Tile": _tile,
    "Pad": _pad,
    "PadV2": _pad,
    "MirrorPad": _pad,
    "OneHot": _one_hot,
    "TopKV2": _top_k,
    "FusedBatchNorm": _batch_norm,
    "FusedBatchNormV2": _batch_norm,
    "FusedBatchNormV3": _batch_norm,
    "Conv2D": convolve,
    "DepthwiseConv2dNative": convolve,
    "MaxPool": pool,
    "AvgPool": pool,
    "ResizeBilinear": resize,
    "ResizeNearestNeighbor": resize,
}
"""Operation → what is known of its outputs."""

SEVERAL_WITH_ROWS = ELEMENTWISE | names(
    "MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3 Einsum ConcatV2 Pack GatherV2 Gather "
    "ResourceGather IdentityN LookupTableFindV2"
)
"""Operations of which other inputs than the first may have rows."""
TAKES_SIZES = names("Reshape BroadcastTo ConcatV2 Pack IdentityN") | _SIZES.keys()
"""Operations of which other inputs than the first may be computed from the number of rows."""
OUTPUTS = {
    "FusedBatchNorm": ("y",),
    "FusedBatchNormV2": ("y",),
    "FusedBatchNormV3": ("y",),
    "TopKV2": ("values", "indices"),
}
"""The names of outputs, for operations that have several under different names."""
