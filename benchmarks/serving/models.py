"""What is served: a line, an MLP and two convolutional networks, as ONNX, so that every server
runs the same.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
IMAGE = (3, 224, 224)
SHAPES: dict[str, tuple[int, ...]] = {
    "linear": (1,),
    "mlp": (784,),
    "cnn": IMAGE,
    "small_cnn": IMAGE,
}
"""Model → the shape of a row."""


def save(name: str, folder: Path) -> Path:
    """Write a model as version 1 below ``folder``; its file."""
    import onnx
    from onnx import TensorProto, helper

    nodes, weights, out = MAKERS[name]()
    sides = [
        helper.make_tensor_value_info(side, TensorProto.FLOAT, ["rows", *shape])
        for side, shape in (("x", SHAPES[name]), ("y", out))
    ]
    constants = [onnx.numpy_helper.from_array(array, key) for key, array in weights.items()]
    graph = helper.make_graph(nodes, name, sides[:1], sides[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    file = folder / "1" / "model.onnx"
    file.parent.mkdir(parents=True)
    onnx.save(model, file)
    return file


Parts = tuple[list[Any], dict[str, Array], tuple[int, ...]]


def _linear() -> Parts:
    from onnx import helper

    nodes = [
        helper.make_node("Mul", ["x", "w"], ["wx"]),
        helper.make_node("Add", ["wx", "b"], ["y"]),
    ]
    return nodes, {"w": np.float32([2.0]), "b": np.float32([10.0])}, (1,)


def _mlp() -> Parts:
    from onnx import helper

    random, nodes, weights, last = np.random.default_rng(1), [], {}, "x"
    sizes = (784, 512, 512, 10)
    for layer, (rows, columns) in enumerate(itertools.pairwise(sizes)):
        weights[f"w{layer}"] = (random.standard_normal((rows, columns)) / rows**0.5).astype(
            np.float32
        )
        weights[f"b{layer}"] = random.standard_normal(columns).astype(np.float32)
        nodes.append(helper.make_node("Gemm", [last, f"w{layer}", f"b{layer}"], [f"g{layer}"]))
        nodes.append(helper.make_node("Relu", [f"g{layer}"], [f"r{layer}"]))
        last = f"r{layer}"
    nodes[-1] = helper.make_node("Softmax", ["g2"], ["y"])
    return nodes, weights, (10,)


class _Layers:
    """Convolutions one after the other, with weights of no meaning and outputs of an even size."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.weights: dict[str, Array] = {}
        self.last = "x"
        self.channels = IMAGE[0]

    def add(self, kind: str, *inputs: str, **options: Any) -> None:
        """A node behind the last one."""
        from onnx import helper

        made = f"{kind}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, [self.last, *inputs], [made], **options))
        self.last = made

    def convolution(
        self, channels: int, size: int = 1, *, stride: int = 1, each: bool = False
    ) -> None:
        """Of ``size`` x ``size``; of ``each`` channel by itself where that is said."""
        before, place = 1 if each else self.channels, len(self.nodes)
        kernel = (
            self._random.standard_normal((channels, before, size, size))
            * (2 / (before * size * size)) ** 0.5
        )
        self.weights[f"k{place}"] = kernel.astype(np.float32)
        self.weights[f"b{place}"] = self._random.standard_normal(channels).astype(np.float32) / 10
        group = channels if each else 1
        pads = [size // 2] * 4
        self.add("Conv", f"k{place}", f"b{place}", strides=[stride] * 2, pads=pads, group=group)
        self.channels = channels

    def classes(self) -> Parts:
        """The thousand outputs."""
        self.weights["w"] = (
            self._random.standard_normal((self.channels, 1000)).astype(np.float32) / 30
        )
        self.add("GlobalAveragePool")
        self.add("Flatten")
        self.add("MatMul", "w")
        self.nodes[-1].output[0] = "y"
        return self.nodes, self.weights, (1000,)


def _small_cnn() -> Parts:
    layers = _Layers(2)
    for channels in (32, 64, 96, 128):
        layers.convolution(channels, 3, stride=2)
        layers.add("Relu")
    return layers.classes()


def _mobilenet() -> Parts:
    """MobileNetV2 as in table 2 of Sandler et al. 2018 (arXiv:1801.04381), its normalisation
    folded into the layers.
    """
    layers = _Layers(4)
    layers.weights |= {"zero": np.float32(0), "six": np.float32(6)}

    def active(channels: int, size: int = 1, *, stride: int = 1, each: bool = False) -> None:
        layers.convolution(channels, size, stride=stride, each=each)
        layers.add("Clip", "zero", "six")

    active(32, 3, stride=2)
    for wider, channels, times, first in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)
    ):  # fmt: skip
        for stride in (first, *[1] * (times - 1)):
            before, begun = layers.channels, layers.last
            if wider > 1:
                active(before * wider)
            active(before * wider, 3, stride=stride, each=True)
            layers.convolution(channels)
            if stride == 1 and before == channels:
                layers.add("Add", begun)
    active(1280)
    return layers.classes()


MAKERS = {"linear": _linear, "mlp": _mlp, "cnn": _mobilenet, "small_cnn": _small_cnn}
"""Model → what makes it."""


def rows(name: str, count: int) -> Array:
    """Inputs to ask with."""
    return np.random.default_rng(3).random((count, *SHAPES[name]), np.float32).round(4)


def runtime(file: Path) -> Any:
    """A session as every server here has it: one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
