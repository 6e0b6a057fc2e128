"""PyTorch's operators that keep rows apart, with the conditions under which they do. No other is
trusted.

Each function takes what is known of the tensors and a node, and returns the axis of the rows of
its output.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from cloud_ml.serving.independence.tensor_info import Dimension, NotIndependent, names
from cloud_ml.serving.independence.torch_tensors import Axis, KnownTensors, place_of_rows

ELEMENTWISE = names(
    """
    abs add add_ addcmul asin atan bitwise_and bitwise_not bitwise_or ceil clamp clamp_max clamp_min cos div div_ elu
    elu_ eq erf exp expm1 floor full_like ge gelu gt hardsigmoid hardsigmoid_ hardswish hardswish_ hardtanh hardtanh_
    isinf isnan le leaky_relu leaky_relu_ log log1p logical_and logical_not logical_or lt masked_fill maximum minimum
    mish mul mul_ ne neg ones_like pow prelu reciprocal relu relu6 relu6_ relu_ remainder round rsqrt rsub selu sigmoid
    sigmoid_ sign silu silu_ sin softplus sqrt square sub sub_ tan tanh tanh_ where zeros_like
    alias clone contiguous detach detach_ lift_fresh_copy to _to_copy type_as
    """
)
REPEATED = names("linear addmm mm dropout")
"""Operators that look at each entry of the axis of the rows by itself, in whichever order these
are.
"""
SHAPED = names("view reshape _unsafe_view flatten unflatten")
_ALONG = names("softmax log_softmax _softmax _log_softmax cumsum")
_REDUCTIONS = names("mean sum amax amin max min argmax argmin logsumexp any all prod var std")
_POOLS = {
    "max_pool1d": 3,
    "max_pool2d": 4,
    "max_pool3d": 5,
    "avg_pool1d": 3,
    "avg_pool2d": 4,
    "avg_pool3d": 5,
    "adaptive_avg_pool1d": 3,
    "adaptive_avg_pool2d": 4,
    "adaptive_avg_pool3d": 5,
    "adaptive_max_pool2d": 4,
    "max_pool2d_with_indices": 4,
    "_adaptive_avg_pool2d": 4,
    "pixel_shuffle": 4,
    "upsample_nearest2d": 4,
    "upsample_bilinear2d": 4,
}

Handler = Callable[[KnownTensors, Any], Axis]


def kind_of(target: str) -> str:
    """The name of one of PyTorch's own operators, without its variant; empty for anything else."""
    return target.removeprefix("aten.").partition(".")[0] if target.startswith("aten.") else ""


def _align_axes(known: KnownTensors, node: Any) -> Axis:
    given = known.among([*node.args, *node.kwargs.values()])
    ends = {known.end(each) for each in known.with_rows(given)}
    sizes = {known.shape(each)[-known.end(each)] for each in known.with_rows(given)}
    if len(ends) != 1 or len(sizes) != 1:
        raise NotIndependent("rows meet another dimension than rows")
    end = ends.pop()
    _check_constants(known, given, end)
    return len(node.meta["val"].shape) - end


def _check_constants(known: KnownTensors, given: Sequence[Any], end: int) -> None:
    for each in given:
        shape = known.shape(each)
        if known.axes[each.name] is None and len(shape) >= end and shape[-end] != Dimension(1):
            raise NotIndependent("a constant has a value for each place among the rows")


def _reshape(known: KnownTensors, node: Any) -> Axis:
    axis, _ = known.single(node)
    before, after = known.shape(node.args[0]), known.shape(node)
    place = place_of_rows(after)
    if place is None:
        raise NotIndependent("the rows are lost")
    outer, left = known.repeats.get(node.args[0].name, 1), [*before[:axis], *after[:place]]
    if any(each.factor is None for each in left) or after[place].factor is None:
        raise NotIndependent("a size is not known")
    # In memory the whole sequence of rows comes as often as the dimensions before it say. What
    # of that is not in dimensions before the new axis is repeated along that axis.
    outer *= prod(each.factor or 0 for each in before[:axis])
    outside = prod(each.factor or 0 for each in after[:place])
    if not outside or outer % outside or (after[place].factor or 0) % (outer // outside):
        raise NotIndependent("numbers together may belong to different rows")
    known.repeats[node.name] = outer // outside
    return place


def _dims(value: Any, rank: int) -> list[int]:
    dims = value if isinstance(value, list | tuple) else [value]
    return [dim % rank for dim in dims]


def _along(known: KnownTensors, node: Any) -> Axis:
    axis, rank = known.single(node)
    if axis in _dims(node.args[1], rank):
        raise NotIndependent("it works along the rows")
    return axis


def _reduce(known: KnownTensors, node: Any) -> Axis:
    axis, rank = known.single(node)
    dims = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    # ``std(x, unbiased)`` has a truth value in this place, and reduces everything.
    if dims is None or dims == [] or isinstance(dims, bool):
        raise NotIndependent("it reduces over the rows")
    gone = _dims(dims, rank)
    if axis in gone:
        raise NotIndependent("it reduces over the rows")
    value = node.meta["val"]
    made = value[0] if isinstance(value, list | tuple) else value
    kept = len(made.shape) == rank
    return axis if kept else axis - sum(dim < axis for dim in gone)


def _pool(known: KnownTensors, node: Any) -> Axis:
    axis, rank = known.single(node)
    kind = kind_of(str(node.target))
    if axis != 0 or rank != _POOLS[kind]:
        raise NotIndependent("its input has no rows")
    return 0


def _linear(known: KnownTensors, node: Any) -> Axis:
    axis, rank = known.single(node)
    if axis == rank - 1:
        raise NotIndependent("it adds over the rows")
    return axis


def _matmul(known: KnownTensors, node: Any) -> Axis:
    one, two = node.args[:2]
    ranks = [len(each.meta["val"].shape) for each in (one, two)]
    rows = known.with_rows([one, two])
    if min(ranks) < 2:
        raise NotIndependent("a product with a vector")
    if len(rows) == 2:
        if known.end(one) != known.end(two) or known.end(one) < 3:
            raise NotIndependent("it adds over the rows, or pairs them with another dimension")
        return len(node.meta["val"].shape) - known.end(one)
    end = known.end(rows[0])
    if (rows[0] is one and end == 1) or (rows[0] is two and end < 3):
        raise NotIndependent("it adds over the rows")
    if end >= 3:
        _check_constants(known, [one, two], end)
    elif max(ranks) != ranks[0] or ranks[1] > 2:
        raise NotIndependent("a matrix of rows meets several matrices")
    return len(node.meta["val"].shape) - end


def _addmm(known: KnownTensors, node: Any) -> Axis:
    bias, one, two = node.args[:3]
    if known.with_rows([bias, two]) or known.axes[one.name] != 0 or len(bias.meta["val"].shape) > 1:
        raise NotIndependent("a parameter of it is made of rows")
    return 0


def _attention(known: KnownTensors, node: Any) -> Axis:
    dropout = node.args[4] if len(node.args) > 4 else node.kwargs.get("dropout_p", 0.0)
    given = known.among([*node.args, *node.kwargs.values()])
    if len(known.with_rows(node.args[:3])) != 3 or dropout:
        raise NotIndependent("it is random, or a part of it is a constant")
    ends = {known.end(each) for each in known.with_rows(given)}
    # The last two dimensions are those of tokens and features.
    if len(ends) != 1 or min(ends) < 3:
        raise NotIndependent("rows attend to each other")
    end = ends.pop()
    _check_constants(known, given, end)
    return len(node.meta["val"].shape) - end


def _dropout(known: KnownTensors, node: Any) -> Axis:
    axis, _ = known.single(node)
    if node.args[2] is not False:
        raise NotIndependent("it is in training mode")
    return axis


def _layer_norm(known: KnownTensors, node: Any) -> Axis:
    axis, rank = known.single(node)
    if axis >= rank - len(node.args[1]):
        raise NotIndependent("it normalises over the rows")
    return axis


def _images(known: KnownTensors, node: Any) -> Axis:
    axis, rank = known.single(node)
    if axis != 0 or rank < 2:
        raise NotIndependent("its input has no rows")
    return 0


def _batch_norm(known: KnownTensors, node: Any) -> Axis:
    if node.args[5] is not False:
        raise NotIndependent("it is in training mode, which normalises over the rows")
    return _images(known, node)


def _convolution(known: KnownTensors, node: Any) -> Axis:
    axis, rank = known.single(node)
    if axis != 0 or rank != len(node.args[1].meta["val"].shape):
        raise NotIndependent("its input has no rows")
    return 0


def _embedding(known: KnownTensors, node: Any) -> Axis:
    if known.axes[node.args[0].name] is not None:
        raise NotIndependent("it takes some of the rows")
    return known.axes[node.args[1].name]


def _transpose(known: KnownTensors, node: Any) -> Axis:
    axis, rank = known.single(node)
    # ``t`` names no dimensions, and leaves vectors and single numbers as they are.
    one, two = _dims(node.args[1:3] or [0, 1], rank) if rank > 1 else (0, 0)
    return {one: two, two: one}.get(axis, axis)


def _permute(known: KnownTensors, node: Any) -> Axis:
    axis, rank = known.single(node)
    return _dims(node.args[1], rank).index(axis)


def _unsqueeze(known: KnownTensors, node: Any) -> Axis:
    axis, rank = known.single(node)
    # The new dimension is counted among those of the result.
    return axis + int(node.args[1] % (rank + 1) <= axis)


def _squeeze(known: KnownTensors, node: Any) -> Axis:
    axis, rank = known.single(node)
    gone = _dims(node.args[1], rank)
    if axis in gone:
        raise NotIndependent("the dimension of the rows goes where there is one row")
    sizes = known.shape(node.args[0])
    if any(sizes[dim].factor is None for dim in gone):
        raise NotIndependent("whether a dimension goes is not known")
    return axis - sum(dim < axis and sizes[dim] == Dimension(1) for dim in set(gone))


def _select(known: KnownTensors, node: Any) -> Axis:
    axis, rank = known.single(node)
    dim = node.args[1] % rank
    if dim == axis:
        raise NotIndependent("it takes some of the rows")
    return axis - int(dim < axis)


def _slice(known: KnownTensors, node: Any) -> Axis:
    axis, rank = known.single(node)
    bounds: list[Any] = [*node.args[1:], *(0, None, None, 1)[len(node.args) - 1 :]]
    dim, start, end, step = bounds
    # PyTorch writes ``sys.maxsize`` for an open end.
    everything = start in (0, None) and (end is None or end >= (1 << 62)) and step == 1
    if dim % rank == axis and not everything:
        raise NotIndependent("it takes some of the rows")
    return axis


def _chosen(known: KnownTensors, node: Any) -> Axis:
    axis, rank = known.single(node)
    if node.args[1] % rank == axis:
        raise NotIndependent("it takes some of the rows")
    return axis


def _parts(known: KnownTensors, node: Any) -> Axis:
    axis, rank = known.single(node)
    dim = node.args[2] if len(node.args) > 2 else node.kwargs.get("dim", 0)
    if dim % rank == axis:
        raise NotIndependent("it takes some of the rows")
    return axis


def _top_k(known: KnownTensors, node: Any) -> Axis:
    axis, rank = known.single(node)
    # ``topk(x, k, dim)``, but ``sort(x, dim)``.
    place = 2 if "topk" in str(node.target) else 1
    dim = node.args[place] if len(node.args) > place else node.kwargs.get("dim", -1)
    if dim % rank == axis:
        raise NotIndependent("it works along the rows")
    return axis


def _cat(known: KnownTensors, node: Any) -> Axis:
    given = node.args[0]
    axes = {known.axes[each.name] for each in given}
    rank = len(given[0].meta["val"].shape)
    dim = (node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)) % rank
    axis = next(iter(axes))
    if len(axes) != 1 or axis == dim:
        raise NotIndependent(
            "it puts tensors one after the other along the rows, or a constant beside them"
        )
    return axis


def _pad(known: KnownTensors, node: Any) -> Axis:
    axis, rank = known.single(node)
    # Two numbers for each dimension, beginning with the last one.
    if axis >= rank - len(node.args[1]) // 2:
        raise NotIndependent("it puts something before or behind the rows")
    return axis


def expand(known: KnownTensors, node: Any) -> Axis:
    """``expand``, of which also a constant may become rows."""
    first, shape = node.args[0], known.shape(node)
    place = place_of_rows(shape)
    if known.axes[first.name] is not None:
        known.repeats[node.name] = known.repeats.get(first.name, 1)
        return len(shape) - known.end(first)
    if place is not None:
        _check_constants(known, [first], len(shape) - place)
    return place


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(ELEMENTWISE, _align_axes),
    **dict.fromkeys(SHAPED, _reshape),
    **dict.fromkeys(_ALONG, _along),
    **dict.fromkeys(_REDUCTIONS, _reduce),
    **dict.fromkeys(_POOLS, _pool),
    "linear": _linear,
    "matmul": _matmul,
    "bmm": _matmul,
    "mm": _matmul,
    "addmm": _addmm,
    "scaled_dot_product_attention": _attention,
    "dropout": _dropout,
    "layer_norm": _layer_norm,
    "group_norm": _images,
    "batch_norm": _batch_norm,
    "conv1d": _convolution,
    "conv2d": _convolution,
    "conv3d": _convolution,
    "convolution": _convolution,
    "embedding": _embedding,
    "transpose": _transpose,
    "permute": _permute,
    "t": _transpose,
    "unsqueeze": _unsqueeze,
    "squeeze": _squeeze,
    "select": _select,
    "slice": _slice,
    "index_select": _chosen,
    "split": _parts,
    "split_with_sizes": _parts,
    "chunk": _parts,
    "cat": _cat,
    "constant_pad_nd": _pad,
    "topk": _top_k,
    "sort": _top_k,
}
