"""ONNX's operators that move a window over images: convolutions and pools."""

from collections.abc import Sequence

from cloud_ml.serving.independence import operators as op
from cloud_ml.serving.independence.onnx_file import Node
from cloud_ml.serving.independence.onnx_inputs import (
    Inputs,
    first,
    given_inputs,
    integer_of,
    integers_of,
    require_input,
)
from cloud_ml.serving.independence.tensor_info import UNKNOWN, Dimension, NotIndependent, TensorInfo
from cloud_ml.serving.independence.windows import Window, spatial_sizes


def convolution(node: Node, infos: Inputs) -> TensorInfo:
    """Conv: each image by itself, if neither kernel nor bias is made of rows."""
    one, kernel = require_input(infos, 0), require_input(infos, 1)
    bias = infos[2] if len(infos) > 2 else None
    if bias is not None:
        op.plain(bias)
        if bias.rows:
            raise NotIndependent("its bias is made of rows")
    sizes = (kernel.shape or ())[2:]
    window = _window(node, [size.known for size in sizes])
    spatial = spatial_sizes((one.shape or ())[2:], window)
    return op.convolve(
        one, kernel, spatial, channels=1, kernel_channels=(kernel.shape or (UNKNOWN,))[0]
    )


def transposed_convolution(node: Node, infos: Inputs) -> TensorInfo:
    """ConvTranspose. The sizes of its images are not worked out."""
    one, kernel = require_input(infos, 0), require_input(infos, 1)
    if any(info.rows for info in given_inputs(infos[1:])):
        raise NotIndependent("its kernel is made of rows")
    return op.convolve(one, kernel, [UNKNOWN] * (one.rank - 2), channels=1, kernel_channels=UNKNOWN)


def pool(node: Node, infos: Inputs) -> TensorInfo:
    """AveragePool, LpPool, MaxPool."""
    one = first(infos)
    window = _window(node, integers_of(node, "kernel_shape"))
    return op.pool(one, spatial_sizes((one.shape or ())[2:], window), channels=1)


def global_pool(_node: Node, infos: Inputs) -> TensorInfo:
    """One value for each channel of an image."""
    one = first(infos)
    return op.pool(one, [Dimension(1)] * (one.rank - 2), channels=1)


def _window(node: Node, kernel: Sequence[int | None]) -> Window:
    count = len(kernel)
    return Window(
        kernel=kernel,
        strides=integers_of(node, "strides", [1] * count),
        dilations=integers_of(node, "dilations", [1] * count),
        pads=integers_of(node, "pads", [0] * 2 * count),
        auto_pad=str(node.attributes.get("auto_pad", "NOTSET")),
        ceil=bool(integer_of(node, "ceil_mode", 0)),
    )
