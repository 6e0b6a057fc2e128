"""How large an image is behind a convolution or a pooling, where that can be told."""

from collections.abc import Sequence
from dataclasses import dataclass

from cloud_ml.serving.independence.tensor_info import UNKNOWN, Dimension


@dataclass(frozen=True, slots=True)
class Window:
    """What slides over the image; ``pads`` are all beginnings, then all ends, as ONNX has them."""

    kernel: Sequence[int | None]
    strides: Sequence[int]
    dilations: Sequence[int]
    pads: Sequence[int]
    auto_pad: str = "NOTSET"
    ceil: bool = False


def spatial_sizes(sizes: Sequence[Dimension], window: Window) -> list[Dimension]:
    """The sizes behind it; unknown where anything is unknown or does not fit."""
    count = len(sizes)
    lists = (window.kernel, window.strides, window.dilations)
    if any(len(each) != count for each in lists) or len(window.pads) != 2 * count:
        return [UNKNOWN] * count
    return [_size(size.known, place, window) for place, size in enumerate(sizes)]


def _size(size: int | None, place: int, window: Window) -> Dimension:
    kernel, stride = window.kernel[place], window.strides[place]
    if size is None or kernel is None or stride < 1:
        return UNKNOWN
    if window.auto_pad in ("SAME_UPPER", "SAME_LOWER") and window.dilations[place] != 1:
        return UNKNOWN  # ONNX Runtime pads for the kernel without its gaps
    if window.auto_pad in ("SAME", "SAME_UPPER", "SAME_LOWER"):
        return Dimension(-(-size // stride))
    padding = 0
    if window.auto_pad == "NOTSET":
        padding = window.pads[place] + window.pads[place + len(window.kernel)]
    elif window.auto_pad != "VALID":
        return UNKNOWN
    left = size + padding - ((kernel - 1) * window.dilations[place] + 1)
    if left < 0:
        return UNKNOWN
    if window.ceil and left % stride:
        return UNKNOWN  # whether the last, smaller one counts differs from framework to framework
    return Dimension(left // stride + 1)
