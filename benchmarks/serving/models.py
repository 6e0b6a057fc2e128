"""What is served: a line, an MLP and a convolutional network, as ONNX, so that every server runs the same."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
SHAPES: dict[str, tuple[int, ...]] = {"linear": (1,), "mlp": (784,), "cnn": (3, 224, 224)}
"""Model → the shape of a row."""


def save(name: str, folder: Path) -> Path:
    """Write a model as version 1 below ``folder``; its file."""
    import onnx
    from onnx import TensorProto, helper

    nodes, weights, out = {"linear": _linear, "mlp": _mlp, "cnn": _cnn}[name]()
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

    nodes = [helper.make_node("Mul", ["x", "w"], ["wx"]), helper.make_node("Add", ["wx", "b"], ["y"])]
    return nodes, {"w": np.float32([2.0]), "b": np.float32([10.0])}, (1,)


def _mlp() -> Parts:
    from onnx import helper

    random, nodes, weights, last = np.random.default_rng(1), [], {}, "x"
    sizes = (784, 512, 512, 10)
    for layer, (rows, columns) in enumerate(itertools.pairwise(sizes)):
        weights[f"w{layer}"] = (random.standard_normal((rows, columns)) / rows**0.5).astype(np.float32)
        weights[f"b{layer}"] = random.standard_normal(columns).astype(np.float32)
        nodes.append(helper.make_node("Gemm", [last, f"w{layer}", f"b{layer}"], [f"g{layer}"]))
        nodes.append(helper.make_node("Relu", [f"g{layer}"], [f"r{layer}"]))
        last = f"r{layer}"
    nodes[-1] = helper.make_node("Softmax", ["g2"], ["y"])
    return nodes, weights, (10,)


def _cnn() -> Parts:
    from onnx import helper

    random, nodes, weights, last = np.random.default_rng(2), [], {}, "x"
    channels = (3, 32, 64, 96, 128)
    for layer, (before, after) in enumerate(itertools.pairwise(channels)):
        weights[f"k{layer}"] = (random.standard_normal((after, before, 3, 3)) / (9 * before) ** 0.5).astype(np.float32)
        weights[f"b{layer}"] = random.standard_normal(after).astype(np.float32)
        nodes.append(
            helper.make_node("Conv", [last, f"k{layer}", f"b{layer}"], [f"c{layer}"], strides=[2, 2], pads=[1] * 4)
        )
        nodes.append(helper.make_node("Relu", [f"c{layer}"], [f"r{layer}"]))
        last = f"r{layer}"
    weights["w"] = (random.standard_normal((channels[-1], 1000)) / channels[-1] ** 0.5).astype(np.float32)
    nodes += [
        helper.make_node("GlobalAveragePool", [last], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "w"], ["y"]),
    ]
    return nodes, weights, (1000,)


def rows(name: str, count: int) -> Array:
    """Inputs to ask with."""
    return np.random.default_rng(3).random((count, *SHAPES[name]), np.float32).round(4)


def runtime(file: Path) -> Any:
    """A session as every server here has it: one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
