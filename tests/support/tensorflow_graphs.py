"""Small SavedModels, written without TensorFlow: some mix their rows in one way or another, some
keep them apart.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cloud_ml.serving.codecs import wire
from cloud_ml.serving.protos import message

Node = tuple[str, str, Sequence[str], Mapping[str, Any]]
_TYPES = {"float32": 1, "int32": 3, "int64": 9}


def node(kind: str, name: str, *inputs: str, **attributes: Any) -> Node:
    """An operation."""
    return name, kind, inputs, attributes


def const(name: str, value: Any) -> Node:
    """A constant."""
    return name, "Const", (), {"value": np.asarray(value)}


def _texts(number: int, *values: str) -> bytes:
    return b"".join(wire.encode_delimited(number, each.encode()) for each in values)


def _shape(sizes: Sequence[int]) -> bytes:
    dims = [wire.key(1, wire.VARINT) + wire.varint(size & (1 << 64) - 1) for size in sizes]
    return b"".join(wire.encode_delimited(2, dim) for dim in dims)


def _attribute(value: Any) -> bytes:
    if isinstance(value, bool):
        return wire.key(5, wire.VARINT) + wire.varint(value)
    if isinstance(value, int):
        return wire.key(3, wire.VARINT) + wire.varint(value & (1 << 64) - 1)
    if isinstance(value, float):
        return wire.key(4, wire.FIXED32) + struct.pack("<f", value)
    if isinstance(value, list):
        packed = b"".join(wire.varint(each & (1 << 64) - 1) for each in value)
        return wire.encode_delimited(1, wire.encode_delimited(3, packed))
    if isinstance(value, tuple):  # a shape
        return wire.encode_delimited(7, _shape(value))
    if isinstance(value, np.ndarray):
        array = value.astype({"f": np.float32, "i": np.int32}[value.dtype.kind])
        dtype = wire.key(1, wire.VARINT) + wire.varint(_TYPES[array.dtype.name])
        content = wire.encode_delimited(4, array.tobytes())
        return wire.encode_delimited(
            8, dtype + wire.encode_delimited(2, _shape(array.shape)) + content
        )
    if value.startswith("function:"):
        return wire.encode_delimited(10, _texts(1, value.removeprefix("function:")))
    return wire.encode_delimited(2, value.encode())


def _node(made: Node) -> bytes:
    name, kind, inputs, attributes = made
    entries = [
        _texts(1, key) + wire.encode_delimited(2, _attribute(value))
        for key, value in attributes.items()
    ]
    return (
        _texts(1, name)
        + _texts(2, kind)
        + _texts(3, *inputs)
        + b"".join(wire.encode_delimited(5, each) for each in entries)
    )


def function(
    name: str, arguments: Sequence[str], nodes: Sequence[Node], results: Mapping[str, str]
) -> bytes:
    """A function of the graph."""
    args = [wire.encode_delimited(2, _texts(1, each)) for each in arguments]
    outs = [wire.encode_delimited(3, _texts(1, each)) for each in results]
    declared = wire.encode_delimited(1, _texts(1, name) + b"".join(args + outs))
    body = [wire.encode_delimited(3, _node(each)) for each in nodes]
    returned = [
        wire.encode_delimited(4, _texts(1, key) + _texts(2, value))
        for key, value in results.items()
    ]
    return declared + b"".join(body + returned)


def saved(
    nodes: Sequence[Node],
    functions: Sequence[bytes] = (),
    *,
    shape: Sequence[int] = (-1, 4),
    out: Sequence[int] | None = None,
    dtype: int = 1,
    output: str = "y:0",
) -> bytes:
    """A ``saved_model.pb`` whose signature takes ``x`` and gives ``output`` as ``y``."""
    model = message("tensorflow.SavedModel")()
    graph = model.meta_graphs.add()
    graph.meta_info_def.tags.append("serve")
    signature = graph.signature_def["serving_default"]
    for side, name, sizes in (
        (signature.inputs, "x", shape),
        (signature.outputs, "y", out or shape),
    ):
        info = side[name]
        info.name, info.dtype = "x:0" if name == "x" else output, dtype
        for size in sizes:
            info.tensor_shape.dim.add(size=size)
    written = b"".join(
        wire.encode_delimited(1, _node(each)) for each in (node("Placeholder", "x"), *nodes)
    )
    library = b"".join(wire.encode_delimited(1, each) for each in functions)
    model.meta_graphs[0].MergeFromString(
        wire.encode_delimited(2, written + wire.encode_delimited(2, library))
    )
    return bytes(model.SerializeToString())


def save(folder: Path, data: bytes) -> Path:
    """Write it as a version."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "saved_model.pb").write_bytes(data)
    return folder


def _called(*body: Node, results: Mapping[str, str]) -> bytes:
    """A graph that calls a function, which calls another one with these nodes; ``w`` is a
    variable.
    """
    inner = function("inner", ["a", "w"], body, results)
    outer = function(
        "outer",
        ["a", "w"],
        [node("PartitionedCall", "call", "a", "w", f="function:inner")],
        {"r": "call:output:0"},
    )
    nodes = [
        node("VarHandleOp", "v", shape=(4,)),
        node("StatefulPartitionedCall", "y", "x", "v", f="function:outer"),
    ]
    return saved(nodes, [inner, outer])


_READ = node("ReadVariableOp", "read", "w")
_COUNT = [
    node("Shape", "s", "x"),
    const("b", [0]),
    const("e", [1]),
    const("t", [1]),
    node("StridedSlice", "n", "s", "b", "e", "t", shrink_axis_mask=1),
]

MIXES: dict[str, bytes] = {
    "rows beside four times as many": saved(
        [
            const("q", [-1, 1]),
            node("Reshape", "r", "x", "q"),
            node("Equal", "e", "x", "r", incompatible_shape_error=False),
            node("Cast", "f", "e", DstT=1),
            node("AddV2", "y", "x", "f"),
        ]
    ),
    "the length of a shape that is too long to be remembered": saved(
        [
            const("axis", 0),
            *_COUNT,
            node("Pack", "v", *["n"] * 65),
            const("a", [0]),
            node("Max", "m", "v", "a"),
            node("Cast", "f", "m", DstT=1),
            node("Mul", "y", "x", "f"),
        ]
    ),
    "a product beyond 32 bits": saved(
        [
            const("c", 1 << 30),
            const("four", 4),
            node("Mul", "d", "c", "four"),
            node("FloorDiv", "e", "d", "c"),
            node("FloorDiv", "a", "e", "four"),
            node("Cumsum", "y", "x", "a"),
        ]
    ),
    "a number of rows beyond 32 bits": saved(
        [
            *_COUNT,
            const("c", 1 << 30),
            node("Mul", "d", "n", "c"),
            node("FloorDiv", "again", "d", "c"),
            const("rest", -1),
            node("Pack", "p", "again", "rest"),
            node("Reshape", "y", "x", "p"),
        ]
    ),
    "mean over the rows": saved(
        [const("a", [0]), node("Mean", "m", "x", "a", keep_dims=True), node("Sub", "y", "x", "m")]
    ),
    "mean of all": saved(
        [const("a", [0, 1]), node("Mean", "m", "x", "a"), node("Sub", "y", "x", "m")]
    ),
    "maximum, counted from the end": saved(
        [const("a", [-2]), node("Max", "m", "x", "a", keep_dims=True), node("Sub", "y", "x", "m")]
    ),
    "cumulative sum": saved([const("a", 0), node("Cumsum", "y", "x", "a")]),
    "gram matrix": saved(
        [node("MatMul", "s", "x", "x", transpose_b=True), node("MatMul", "y", "s", "x")]
    ),
    "sum over rows": saved(
        [node("MatMul", "s", "x", "x", transpose_a=True), node("MatMul", "y", "x", "s")]
    ),
    "einsum": saved(
        [node("Einsum", "s", "x", "x", equation="bi,bj->ij"), node("MatMul", "y", "x", "s")]
    ),
    "softmax of transposed rows": saved(
        [
            const("p", [1, 0]),
            node("Transpose", "t", "x", "p"),
            node("Softmax", "s", "t"),
            node("Transpose", "y", "s", "p"),
        ]
    ),
    "softmax of single numbers": saved([node("Softmax", "y", "x")], shape=(-1,)),
    "reshape across rows": saved(
        [
            const("p", [-1, 8]),
            const("q", [-1, 4]),
            node("Reshape", "r", "x", "p"),
            node("Softmax", "s", "r"),
            node("Reshape", "y", "s", "q"),
        ]
    ),
    "first row": saved(
        [
            const("b", [0]),
            const("e", [1]),
            const("t", [1]),
            node("StridedSlice", "f", "x", "b", "e", "t"),
            node("Sub", "y", "x", "f"),
        ]
    ),
    "first row, without its dimension": saved(
        [
            const("b", [0]),
            const("e", [1]),
            const("t", [1]),
            node("StridedSlice", "f", "x", "b", "e", "t", shrink_axis_mask=1),
            node("Sub", "y", "x", "f"),
        ]
    ),
    "reversed": saved(
        [
            const("b", [0]),
            const("e", [0]),
            const("t", [-1]),
            node("StridedSlice", "y", "x", "b", "e", "t", begin_mask=1, end_mask=1),
        ]
    ),
    "reversed by its own operation": saved([const("a", [0]), node("ReverseV2", "y", "x", "a")]),
    "gather a row": saved(
        [
            const("i", [0]),
            const("a", 0),
            node("GatherV2", "g", "x", "i", "a"),
            node("Sub", "y", "x", "g"),
        ]
    ),
    "concat of rows": saved(
        [
            const("a", 0),
            node("ConcatV2", "c", "x", "x", "a"),
            const("b", [0]),
            node("Max", "m", "c", "b"),
            node("Sub", "y", "x", "m"),
        ]
    ),
    "pack before the rows": saved(
        [
            node("Pack", "p", "x", "x", axis=0),
            const("b", [1]),
            node("Max", "m", "p", "b"),
            const("c", [0]),
            node("Max", "n", "m", "c"),
            node("Sub", "y", "x", "n"),
        ]
    ),
    "unpack the rows": saved([node("Unpack", "u", "x", num=1, axis=0), node("Sub", "y", "x", "u")]),
    "split of rows": saved(
        [const("a", 0), node("Split", "s", "a", "x", num_split=1), node("Sub", "y", "x", "s")]
    ),
    "top k over the rows": saved(
        [
            const("p", [1, 0]),
            node("Transpose", "t", "x", "p"),
            const("k", 1),
            node("TopKV2", "v", "t", "k"),
            node("Transpose", "u", "v", "p"),
            node("Sub", "y", "x", "u"),
        ]
    ),
    "arg max over the rows": saved(
        [
            const("a", 0),
            node("ArgMax", "m", "x", "a"),
            node("Cast", "f", "m", DstT=1),
            node("Sub", "y", "x", "f"),
        ]
    ),
    "a constant for each place": saved(
        [const("c", np.zeros((3, 4), np.float32)), node("AddV2", "y", "x", "c")]
    ),
    "batch norm in training mode": saved(
        [
            const("g", np.ones(2, np.float32)),
            node("FusedBatchNormV3", "y", "x", "g", "g", "g", "g", is_training=True),
        ],
        shape=(-1, 3, 3, 2),
    ),
    "batch norm that does not say": saved(
        [
            const("g", np.ones(2, np.float32)),
            node("FusedBatchNormV3", "y", "x", "g", "g", "g", "g"),
        ],
        shape=(-1, 3, 3, 2),
    ),
    "strides over rows": saved(
        [node("MaxPool", "y", "x", ksize=[2, 1, 1, 1], strides=[1, 1, 1, 1], padding="SAME")],
        shape=(-1, 3, 3, 2),
    ),
    "squeeze of whatever is one": saved(
        [
            node("Squeeze", "s", "x"),
            node("Softmax", "t", "s"),
            const("q", [-1, 4]),
            node("Reshape", "y", "t", "q"),
        ]
    ),
    "padding before the rows": saved(
        [
            const("p", [[1, 0], [0, 0]]),
            node("Pad", "q", "x", "p"),
            const("a", [0]),
            node("Max", "m", "q", "a"),
            node("Sub", "y", "x", "m"),
        ]
    ),
    "number of rows as a value": saved(
        [*_COUNT, node("Cast", "f", "n", DstT=1), node("Mul", "y", "x", "f")]
    ),
    "place among the rows": saved(
        [
            *_COUNT,
            const("zero", 0),
            const("one", 1),
            node("Range", "r", "zero", "n", "one"),
            node("Cast", "f", "r", DstT=1),
            const("a", 1),
            node("ExpandDims", "c", "f", "a"),
            node("AddV2", "y", "x", "c"),
        ]
    ),
    "random": saved(
        [node("Shape", "s", "x"), node("RandomUniform", "r", "s"), node("AddV2", "y", "x", "r")]
    ),
    "unique": saved(
        [
            const("q", [-1]),
            node("Reshape", "f", "x", "q"),
            node("Unique", "u", "f"),
            const("a", [0]),
            node("Sum", "m", "u", "a"),
            node("Sub", "y", "x", "m"),
        ]
    ),
    "a condition for each row, as an older operation has it": saved(
        [const("c", np.ones(3, np.int32)), node("Select", "y", "c", "x", "x")]
    ),
    "nested functions": _called(
        const("a0", [0]),
        node("Mean", "m", "a", "a0:output:0"),
        node("Sub", "s", "a", "m:output:0"),
        results={"r": "s:z:0"},
    ),
    "a counter beside the answer": _called(
        _READ,
        const("one", np.ones(4, np.float32)),
        node("AssignAddVariableOp", "n", "w", "one:output:0"),
        node("AddV2", "s", "a", "read:value:0"),
        results={"r": "s:z:0"},
    ),
    "while": _called(
        node("While", "l", "a", cond="function:c", body="function:b"), results={"r": "l:output:0"}
    ),
    "if": _called(
        node("StatelessIf", "l", "a", "a", then_branch="function:c", else_branch="function:b"),
        results={"r": "l:output:0"},
    ),
    "statistics of a normalisation": _called(
        node("FusedBatchNormV3", "n", "a", "w", "w", "w", "w", is_training=False),
        node("AddV2", "s", "a", "n:batch_mean:0"),
        results={"r": "s:z:0"},
    ),
    "ragged": saved([node("RaggedTensorToTensor", "y", "x")]),
    "functions in a circle": saved(
        [node("PartitionedCall", "y", "x", f="function:f")],
        [
            function(
                "f", ["a"], [node("PartitionedCall", "c", "a", f="function:f")], {"r": "c:output:0"}
            )
        ],
    ),
    "what feeds itself": saved([node("Relu", "y", "z"), node("Relu", "z", "y")]),
}
"""Graphs whose rows influence each other, or that cannot be followed: by what they do."""

APART: dict[str, bytes] = {
    "linear": saved(
        [
            const("w", np.ones(4, np.float32)),
            node("Mul", "m", "x", "w"),
            node("AddV2", "y", "m", "w"),
        ]
    ),
    "mlp": saved(
        [
            node("VarHandleOp", "v", shape=(4, 4)),
            node("ReadVariableOp", "w", "v"),
            node("MatMul", "m", "x", "w"),
            const("b", np.ones(4, np.float32)),
            node("BiasAdd", "n", "m", "b"),
            node("Relu", "r", "n"),
            node("Softmax", "y", "r"),
        ]
    ),
    "functions with variables": _called(
        _READ, node("AddV2", "s", "a", "read:value:0"), results={"r": "s:z:0"}
    ),
    "cnn": saved(
        [
            const("k", np.ones((3, 3, 2, 2), np.float32)),
            const("g", np.ones(2, np.float32)),
            node("Conv2D", "c", "x", "k", strides=[1, 2, 2, 1], padding="SAME"),
            node("FusedBatchNormV3", "n", "c", "g", "g", "g", "g", is_training=False),
            node("Relu", "r", "n"),
            const("a", [1, 2]),
            node("Mean", "y", "r", "a"),
        ],
        shape=(-1, 8, 8, 2),
        out=(-1, 2),
    ),
    "flatten by computed sizes": saved(
        [
            *_COUNT,
            const("rest", -1),
            node("Pack", "p", "n", "rest"),
            node("Reshape", "f", "x", "p"),
            const("w", np.ones((6, 2), np.float32)),
            node("MatMul", "y", "f", "w"),
        ],
        shape=(-1, 2, 3),
        out=(-1, 2),
    ),
    "the last token": saved(
        [
            const("b", [0, -1]),
            const("e", [0, 0]),
            const("t", [1, 1]),
            node(
                "StridedSlice",
                "y",
                "x",
                "b",
                "e",
                "t",
                begin_mask=1,
                end_mask=1,
                shrink_axis_mask=2,
            ),
        ],
        shape=(-1, 5, 3),
        out=(-1, 3),
    ),
    "embedding": saved(
        [
            const("t", np.ones((9, 4), np.float32)),
            const("a", 0),
            node("GatherV2", "y", "t", "x", "a"),
        ],
        shape=(-1,),
        out=(-1, 4),
        dtype=3,
    ),
}
"""Graphs whose rows are independent of each other."""
