"""TensorFlow's operations that put tensors together or take parts of them."""

from collections.abc import Sequence

from cloud_ml.serving.independence import operators as op
from cloud_ml.serving.independence.tensor_info import (
    UNKNOWN,
    Dimension,
    NotIndependent,
    TensorInfo,
    tensor,
    vector,
)
from cloud_ml.serving.independence.tensorflow_attributes import integer, number_of_outputs
from cloud_ml.serving.independence.tensorflow_file import Node


def concat(_node: Node, infos: Sequence[TensorInfo]) -> TensorInfo:
    """``ConcatV2``; the last input is the axis."""
    return op.concat(infos[:-1], infos[-1].integer())


def pack(node: Node, infos: Sequence[TensorInfo]) -> TensorInfo:
    """Tensors one after the other along a new axis."""
    axis = integer(node, "axis")
    if all(info.values is not None and info.shape == () for info in infos):
        return vector([info.values[0] for info in infos if info.values])
    if axis == 0 and any(info.rows for info in infos):
        raise NotIndependent("the rows are not the first dimension")
    return op.concat([op.expand_dims(info, [axis]) for info in infos], axis)


def unpack(node: Node, infos: Sequence[TensorInfo]) -> list[TensorInfo]:
    """One output for each entry of an axis."""
    axis = integer(node, "axis")
    return [op.squeeze(op.part(infos[0], axis, Dimension(1)), [axis])] * number_of_outputs(
        node, "num"
    )


def split(node: Node, infos: Sequence[TensorInfo]) -> list[TensorInfo]:
    """Equal parts of an axis, which is the first input."""
    return [op.part(infos[1], infos[0].integer())] * number_of_outputs(node, "num_split")


def split_sizes(_node: Node, infos: Sequence[TensorInfo]) -> list[TensorInfo]:
    """Parts of an axis with sizes of their own."""
    sizes = infos[1].integers()
    return [
        op.part(infos[0], infos[2].integer(), Dimension(size) if size >= 0 else UNKNOWN)
        for size in sizes
    ]


def strided_slice(node: Node, infos: Sequence[TensorInfo]) -> TensorInfo:
    """``tensor[begin:end:step]``, with masks for open bounds, an ellipsis and new axes."""
    one = infos[0]
    begins, ends, steps = (info.integers() for info in infos[1:4])
    masks = [
        integer(node, f"{name}_mask")
        for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    ]
    # Only forwards: Python limits the bounds there as TensorFlow does.
    forward = len(begins) == len(steps) == 1 and steps[0] > 0
    if one.values is not None and one.rank == 1 and forward and not masks[2] and not masks[3]:
        return _some_values(one.values, (begins[0], ends[0], steps[0]), masks)
    op.plain(one)
    return tensor(_slice_sizes(one, list(zip(begins, ends, steps, strict=True)), masks))


def _some_values(
    values: Sequence[Dimension], bounds: tuple[int, int, int], masks: Sequence[int]
) -> TensorInfo:
    begin, end, step = bounds
    if masks[4]:
        return TensorInfo((), (values[op.axis_of(begin, len(values))],))
    return vector(values[None if masks[0] else begin : None if masks[1] else end : step])


def _slice_sizes(
    one: TensorInfo, bounds: Sequence[tuple[int, int, int]], masks: Sequence[int]
) -> list[Dimension]:
    """The sizes of a slice: the first dimension of rows must be taken as it is."""
    made: list[Dimension] = []
    shape, axis = one.shape, 0
    if shape is None:
        raise NotIndependent("the rank of a tensor is not known")
    # How many entries take a dimension of the tensor; an ellipsis stands for all that are left.
    real = sum(not (masks[2] | masks[3]) >> place & 1 for place in range(len(bounds)))
    for place, (begin, _, step) in enumerate(bounds):
        begins, all_ends, ellipsis, added, gone = ((mask >> place) & 1 for mask in masks)
        # Where several masks name a place, TensorFlow looks at the ellipsis first, then at new
        # axes.
        if ellipsis:
            made += shape[axis : axis + len(shape) - real]
            axis += len(shape) - real
        elif added:
            made.append(Dimension(1))
        else:
            whole = step == 1 and (begins or begin == 0) and all_ends and not gone
            if axis == 0 and one.rows and not whole:
                raise NotIndependent("it takes some of the rows")
            if not gone:
                made.append(shape[axis] if whole else UNKNOWN)
            axis += 1
    return [*made, *shape[axis:]]


def gather(node: Node, infos: Sequence[TensorInfo]) -> TensorInfo:
    """Entries along an axis."""
    if integer(node, "batch_dims"):
        raise NotIndependent("it has dimensions of batches")
    return op.gather(infos[0], infos[1], infos[2].integer() if len(infos) > 2 else 0)
