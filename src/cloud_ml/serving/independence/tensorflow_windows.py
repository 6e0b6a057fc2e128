"""TensorFlow's operations that move a window over images."""

from collections.abc import Sequence

from cloud_ml.serving.independence import operators as op
from cloud_ml.serving.independence.tensor_info import (
    UNKNOWN,
    Dimension,
    NotIndependent,
    TensorInfo,
    product,
)
from cloud_ml.serving.independence.tensorflow_attributes import integers
from cloud_ml.serving.independence.tensorflow_file import Node
from cloud_ml.serving.independence.windows import Window, spatial_sizes


def _channels(node: Node, rank: int) -> int:
    """The axis of the channels."""
    return 1 if str(node.attributes.get("data_format", "NHWC")).startswith("NC") else rank - 1


def _space(node: Node, name: str, rank: int) -> list[int]:
    """The entries of an attribute for the dimensions of space; those for rows and channels must
    be 1.
    """
    values = integers(node, name) or [1] * rank
    channels = _channels(node, rank)
    if len(values) != rank or values[0] != 1 or values[channels] != 1:
        raise NotIndependent(f"{name} is {values}, which is more than space")
    return [value for place, value in enumerate(values) if place not in (0, channels)]


def _window(node: Node, one: TensorInfo, kernel: Sequence[int | None]) -> list[Dimension]:
    rank, channels = one.rank, _channels(node, one.rank)
    sizes = [size for place, size in enumerate(one.shape or ()) if place not in (0, channels)]
    window = Window(
        kernel=kernel,
        strides=_space(node, "strides", rank),
        dilations=_space(node, "dilations", rank),
        pads=[0] * 2 * len(sizes),
        auto_pad=str(node.attributes.get("padding", "")),
    )
    return spatial_sizes(sizes, window)


def convolve(node: Node, infos: Sequence[TensorInfo]) -> TensorInfo:
    """A convolution, with one kernel for all channels or one for each."""
    one, kernel = infos[0], infos[1]
    shape = kernel.shape or ()
    spatial = _window(node, one, [size.known for size in shape[:-2]])
    count = shape[-1] if len(shape) > 2 else UNKNOWN
    if node.kind == "DepthwiseConv2dNative" and len(shape) > 2:
        count = product(shape[-2:])
    place = 1 if _channels(node, one.rank) == 1 and one.rank > 2 else -1
    return op.convolve(one, kernel, spatial, channels=place, kernel_channels=count)


def pool(node: Node, infos: Sequence[TensorInfo]) -> TensorInfo:
    """A maximum or mean of each window."""
    one = infos[0]
    spatial = _window(node, one, _space(node, "ksize", one.rank))
    return op.pool(one, spatial, channels=1 if _channels(node, one.rank) == 1 else -1)


def resize(_node: Node, infos: Sequence[TensorInfo]) -> TensorInfo:
    """An image in another size; TensorFlow has the channels last."""
    if infos[0].rank != 4:
        raise NotIndependent("its input is no image")
    return op.pool(infos[0], [UNKNOWN, UNKNOWN], channels=-1)
