"""Graphs of models, which are read beside their frameworks to see whether rows are independent."""

from __future__ import annotations

import struct
from typing import Any

import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper, numpy_helper

from cloud_ml.serving import dtypes
from cloud_ml.serving.independence import onnx_file, onnx_graph, tensorflow_file, tensorflow_graph
from cloud_ml.serving.independence.facts import Fact, Mixes
from cloud_ml.serving.signatures import Signature, TensorSpec
from fuzz.harness import target
from support.tensorflow_graphs import APART, MIXES

SIDE = (TensorSpec("x", dtypes.FLOAT, (-1, 4), inner="x"),), (TensorSpec("y", dtypes.FLOAT, (-1, 4), inner="y"),)
SIGNATURE = Signature("s", *SIDE)
SAVED_SIDE = (
    (TensorSpec("x", dtypes.FLOAT, (-1, 4), inner="x:0"),),
    (TensorSpec("y", dtypes.FLOAT, (-1, 4), inner="y:0"),),
)
SAVED_SIGNATURE = Signature("s", *SAVED_SIDE)


def _seed() -> bytes:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Reshape", ["x", "s"], ["r"], allowzero=1),
        helper.make_node("Transpose", ["r"], ["t"], perm=[0, 1]), helper.make_node("Add", ["t", "w"], ["a"], name="n"),
        helper.make_node("Softmax", ["a"], ["y"], axis=-1),
    ]  # fmt: skip
    sides = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 4])] for name in "xy"]
    weights = [helper.make_tensor("w", TensorProto.FLOAT, [4], [1.0, 2, 3, 4])]
    weights.append(helper.make_tensor("i", TensorProto.INT64, [2], [-1, 4]))
    nodes += [
        helper.make_node("Constant", [], ["c"], value=helper.make_tensor("", TensorProto.BOOL, [2], [True, False])),
        helper.make_node("Constant", [], ["d"], value_ints=[1, -1]),
        helper.make_node("Constant", [], ["e"], value_float=1.5),
        helper.make_node("MaxPool", ["x"], ["p"], auto_pad="SAME_UPPER", kernel_shape=[2]),
    ]
    weights.append(helper.make_tensor("j", TensorProto.INT32, [2], b"\x01\0\0\0\xff\xff\xff\xff", raw=True))
    model = helper.make_model(helper.make_graph(nodes, "g", *sides, weights))
    return bytes(model.SerializeToString())


@target(
    "serving.independence.onnx_file",
    "serving.independence.onnx_graph",
    seeds=[_seed(), b"", b":\x00", b"\x08\x0a:\xff\xff\xff\xff\x0f"],
    words=["x", "y", "Reshape", "Softmax", "axis", "Gather", b"\x0a", b"\x2a", b"\x3a", b"\x08\x01"],
)
def onnx_graph_file(data: bytes) -> None:
    """Refused with a reason; or the nodes that ONNX's own reader finds."""
    try:
        graph = onnx_file.read(data)
    except Mixes as reason:
        assert str(reason)  # noqa: PT017
        return
    try:
        onnx_graph.check(data, SIGNATURE)
    except Mixes as reason:
        assert str(reason)  # noqa: PT017
    try:
        model = onnx.ModelProto.FromString(data)
    except DecodeError:
        return
    assert [node.kind for node in graph.nodes] == [node.op_type for node in model.graph.node]
    assert [node.inputs for node in graph.nodes] == [list(node.input) for node in model.graph.node]
    assert [node.outputs for node in graph.nodes] == [list(node.output) for node in model.graph.node]
    for node, theirs in zip(graph.nodes, model.graph.node, strict=True):
        for attribute in theirs.attribute:
            _check_attribute(node.attributes[attribute.name], attribute)
    for proto in model.graph.initializer:
        _check_tensor(graph.constants[proto.name], proto)
    assert graph.opsets == {_domain(each.domain): each.version for each in model.opset_import}


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _check_attribute(mine: Any, theirs: onnx.AttributeProto) -> None:
    """The value is what ONNX's own reader finds for the type."""
    kinds = onnx.AttributeProto
    if theirs.type == kinds.INT:
        assert mine == theirs.i
    elif theirs.type == kinds.FLOAT:
        assert struct.pack("<f", mine) == struct.pack("<f", theirs.f)
    elif theirs.type == kinds.STRING:
        assert mine == theirs.s.decode("utf-8", "replace")
    elif theirs.type == kinds.INTS:
        assert mine == list(theirs.ints)
    elif theirs.type == kinds.TENSOR and theirs.HasField("t"):
        _check_tensor(mine, theirs.t)
    else:
        assert mine is None


def _check_tensor(mine: Fact, theirs: TensorProto) -> None:
    """Sizes and values are what ONNX's own reader finds, where they are known."""
    if mine.shape is not None:
        assert [size.factor for size in mine.shape] == list(theirs.dims)
    if mine.values is None:
        return
    try:
        array = numpy_helper.to_array(theirs)
    except (ValueError, TypeError):
        return
    assert [value.factor for value in mine.values] == [int(each) for each in array.ravel()]


@target(
    "serving.independence.tensorflow_file",
    "serving.independence.tensorflow_graph",
    seeds=[*APART.values(), *list(MIXES.values())[:8], b"", b"\x12\x00"],
    words=["x", "y", "Reshape", "Softmax", "PartitionedCall", "function:f", b"\x0a", b"\x12", b"\x2a", b"\x1a\x01"],
)
def saved_model_graph(data: bytes) -> None:
    """Refused with a reason; or a graph, which is followed or refused with a reason."""
    try:
        graph = tensorflow_file.parse(data)
        tensorflow_graph.check(graph, SAVED_SIGNATURE)
    except Mixes as reason:
        assert str(reason)  # noqa: PT017
