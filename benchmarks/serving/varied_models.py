"""Five models with inputs of different kinds, and requests to them of which no two are alike."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cloud_ml.serving.codecs import wire
from cloud_ml.serving.protos import message
from serving import models
from serving.models import Array

Inputs = dict[str, Array]
ENCODINGS = ("content", "typed")
_TYPES = {
    "float32": (1, "FP32", "float_val"),
    "int32": (3, "INT32", "int_val"),
    "int64": (9, "INT64", "int64_val"),
}


@dataclass(frozen=True)
class Varied:
    """A model: what writes it below a folder, and inputs for some rows."""

    save: Callable[[Path], Path]
    inputs: Callable[[random.Random, int], Inputs]


def _floats(luck: random.Random, *shape: int) -> Array:
    return np.random.default_rng(luck.getrandbits(32)).random(shape, np.float32).round(4)


def _whole(luck: random.Random, most: int, dtype: Any, *shape: int) -> Array:
    return np.random.default_rng(luck.getrandbits(32)).integers(0, most, shape).astype(dtype)


def _save(
    folder: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: dict[str, Array]
) -> Path:
    import onnx
    from onnx import helper

    constants = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, folder.name, inputs, outputs, constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    file = folder / "1" / "model.onnx"
    file.parent.mkdir(parents=True)
    onnx.save(made, file)
    return file


def _value(name: str, dtype: str, *shape: Any) -> Any:
    from onnx import TensorProto, helper

    return helper.make_tensor_value_info(name, getattr(TensorProto, dtype), ["rows", *shape])


def _slides(folder: Path) -> Path:
    """The model of the slides: keys come back beside a prediction."""
    from onnx import helper

    nodes = [
        helper.make_node("Mul", ["X", "w"], ["wx"]),
        helper.make_node("Add", ["wx", "b"], ["predict"]),
        helper.make_node("Identity", ["keys"], ["keys_out"]),
    ]
    inputs = [_value("keys", "INT32", 1), _value("X", "FLOAT", 1)]
    outputs = [_value("keys_out", "INT32", 1), _value("predict", "FLOAT", 1)]
    return _save(folder, nodes, inputs, outputs, {"w": np.float32([2.0]), "b": np.float32([10.0])})


def _pair(folder: Path) -> Path:
    """The sum of two vectors."""
    from onnx import helper

    nodes = [helper.make_node("Add", ["left", "right"], ["sum"])]
    inputs = [_value("left", "FLOAT", 8), _value("right", "FLOAT", 8)]
    return _save(folder, nodes, inputs, [_value("sum", "FLOAT", 8)], {})


def _tokens(folder: Path) -> Path:
    """Rows of an embedding, for each of some tokens."""
    from onnx import helper

    nodes = [helper.make_node("Gather", ["table", "ids"], ["vectors"])]
    table = np.random.default_rng(5).random((1000, 4), np.float32)
    return _save(
        folder,
        nodes,
        [_value("ids", "INT64", "n")],
        [_value("vectors", "FLOAT", "n", 4)],
        {"table": table},
    )


VARIED = {
    "linear": Varied(
        lambda folder: models.save("linear", folder),
        lambda luck, rows: {"x": _floats(luck, rows, 1)},
    ),
    "mlp": Varied(
        lambda folder: models.save("mlp", folder),
        lambda luck, rows: {"x": _floats(luck, rows, 784)},
    ),
    "slides": Varied(
        _slides,
        lambda luck, rows: {
            "keys": _whole(luck, 100_000, np.int32, rows, 1),
            "X": (100 * _floats(luck, rows, 1)).round(2),
        },
    ),
    "pair": Varied(
        _pair, lambda luck, rows: {"left": _floats(luck, rows, 8), "right": _floats(luck, rows, 8)}
    ),
    "tokens": Varied(
        _tokens, lambda luck, rows: {"ids": _whole(luck, 1000, np.int64, rows, luck.randint(1, 12))}
    ),
}


def predict(model: str, inputs: Inputs, encoding: str, luck: random.Random) -> bytes:
    """A ``PredictRequest`` with its prefix, its inputs in any order."""
    entries = []
    for name, array in inputs.items():
        number, _, field = _TYPES[str(array.dtype)]
        tensor = message("tensorflow.TensorProto")(dtype=number)
        for size in array.shape:
            tensor.tensor_shape.dim.add(size=size)
        if encoding == "content":
            tensor.tensor_content = array.tobytes()
        else:
            getattr(tensor, field).extend(array.ravel().tolist())
        entries.append(
            wire.encode_delimited(
                2,
                wire.encode_delimited(1, name.encode())
                + wire.encode_delimited(2, tensor.SerializeToString()),
            )
        )
    luck.shuffle(entries)
    data = wire.encode_delimited(1, wire.encode_delimited(1, model.encode())) + b"".join(entries)
    return b"\0" + len(data).to_bytes(4, "big") + data


def by_rows(inputs: Inputs, luck: random.Random) -> bytes:
    """``instances``: an object for each row."""
    names = luck.sample(list(inputs), len(inputs))
    count = len(next(iter(inputs.values())))
    rows = [{name: _numbers(inputs[name][row]) for name in names} for row in range(count)]
    return json.dumps({"instances": rows}).encode()


def by_columns(inputs: Inputs, luck: random.Random) -> bytes:
    """``inputs``: an object of tensors."""
    names = luck.sample(list(inputs), len(inputs))
    return json.dumps({"inputs": {name: _numbers(inputs[name]) for name in names}}).encode()


def v2(inputs: Inputs, luck: random.Random) -> bytes:
    """A request for inference by the Open Inference Protocol."""
    names = luck.sample(list(inputs), len(inputs))
    tensors = [
        {
            "name": name,
            "datatype": _TYPES[str(inputs[name].dtype)][1],
            "shape": inputs[name].shape,
            "data": _numbers(inputs[name].ravel()),
        }
        for name in names
    ]
    return json.dumps({"inputs": tensors}).encode()


def _numbers(array: Array) -> Any:
    """Lists of numbers, floats with few digits."""
    return (
        array.astype(np.float64).round(4).tolist() if array.dtype == np.float32 else array.tolist()
    )
