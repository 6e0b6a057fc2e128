"""Graphs of models, which are read beside their frameworks to see whether rows are independent."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper, numpy_helper

from cloud_ml.serving import dtypes
from cloud_ml.serving.independence import onnx_file, onnx_graph, tensorflow_file, tensorflow_graph
from cloud_ml.serving.independence.tensor_info import NotIndependent, TensorInfo
from cloud_ml.serving.signatures import Signature, TensorSpec
from fuzz.harness import target
from support import tensorflow_messages
from support.tensorflow_graphs import APART, MIXES

SIDE = (
    (TensorSpec("x", dtypes.FLOAT, (-1, 4), inner="x"),),
    (TensorSpec("y", dtypes.FLOAT, (-1, 4), inner="y"),),
)
SIGNATURE = Signature("s", *SIDE)
SAVED_SIDE = (
    (TensorSpec("x", dtypes.FLOAT, (-1, 4), inner="x:0"),),
    (TensorSpec("y", dtypes.FLOAT, (-1, 4), inner="y:0"),),
)
SAVED_SIGNATURE = Signature("s", *SAVED_SIDE)


def _seed() -> bytes:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Reshape", ["x", "s"], ["r"], allowzero=1),
        helper.make_node("Transpose", ["r"], ["t"], perm=[0, 1]),
        helper.make_node("Add", ["t", "w"], ["a"], name="n"),
        helper.make_node("Softmax", ["a"], ["y"], axis=-1),
    ]
    inputs, outputs = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 4])] for name in "xy"
    ]
    weights = [helper.make_tensor("w", TensorProto.FLOAT, [4], [1.0, 2, 3, 4])]
    weights.append(helper.make_tensor("i", TensorProto.INT64, [2], [-1, 4]))
    nodes += [
        helper.make_node(
            "Constant",
            [],
            ["c"],
            value=helper.make_tensor("", TensorProto.BOOL, [2], [True, False]),
        ),
        helper.make_node("Constant", [], ["d"], value_ints=[1, -1]),
        helper.make_node("Constant", [], ["e"], value_float=1.5),
        helper.make_node("MaxPool", ["x"], ["p"], auto_pad="SAME_UPPER", kernel_shape=[2]),
    ]
    weights.append(
        helper.make_tensor("j", TensorProto.INT32, [2], b"\x01\0\0\0\xff\xff\xff\xff", raw=True)
    )
    model = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, weights))
    return bytes(model.SerializeToString())


@target(
    "serving.independence.onnx_file",
    "serving.independence.onnx_graph",
    seeds=[_seed(), b"", b":\x00", b"\x08\x0a:\xff\xff\xff\xff\x0f"],
    words=[
        "x",
        "y",
        "Reshape",
        "Softmax",
        "axis",
        "Gather",
        b"\x0a",
        b"\x2a",
        b"\x3a",
        b"\x08\x01",
    ],
)
def onnx_graph_file(data: bytes) -> None:
    """Refused with a reason; or the nodes that ONNX's own reader finds."""
    try:
        graph = onnx_file.read(data)
    except NotIndependent as reason:
        assert str(reason)  # noqa: PT017
        return
    try:
        onnx_graph.check(data, SIGNATURE)
    except NotIndependent as reason:
        assert str(reason)  # noqa: PT017
    try:
        model = onnx.ModelProto.FromString(data)
    except DecodeError:
        return
    assert [node.kind for node in graph.nodes] == [node.op_type for node in model.graph.node]
    assert [node.inputs for node in graph.nodes] == [list(node.input) for node in model.graph.node]
    assert [node.outputs for node in graph.nodes] == [
        list(node.output) for node in model.graph.node
    ]
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


def _check_tensor(mine: TensorInfo, theirs: TensorProto) -> None:
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
    words=[
        "x",
        "y",
        "Reshape",
        "Softmax",
        "PartitionedCall",
        "function:f",
        b"\x0a",
        b"\x12",
        b"\x2a",
        b"\x1a\x01",
    ],
)
def saved_model_graph(data: bytes) -> None:
    """Refused with a reason; or the nodes and functions that protobuf's own parser finds."""
    try:
        graph = tensorflow_file.parse(data)
    except NotIndependent as reason:
        assert str(reason)  # noqa: PT017
        return
    try:
        tensorflow_graph.check(graph, SAVED_SIGNATURE)
    except NotIndependent as reason:
        assert str(reason)  # noqa: PT017
    compare_with_protobuf(graph, data)


def compare_with_protobuf(graph: tensorflow_file.Graph, data: bytes) -> None:
    """Every node, function, attribute and constant is what protobuf's parser finds in a file
    that it takes.
    """
    try:
        model = tensorflow_messages.message("Saved").FromString(data)
    except DecodeError:
        return
    theirs = next(
        each.graph_def for each in model.meta_graphs if "serve" in each.meta_info_def.tags
    )
    _compare_nodes(graph.nodes, theirs.node)
    assert graph.functions.keys() == {each.signature.name for each in theirs.library.function}
    for function in theirs.library.function:
        mine = graph.functions[function.signature.name]
        assert mine.arguments == [each.name for each in function.signature.input_arg]
        returned = {each.key: each.value for each in function.ret}
        assert mine.results == [
            returned.get(each.name, "") for each in function.signature.output_arg
        ]
        _compare_nodes(mine.nodes, function.node_def)


def _compare_nodes(mine: list[tensorflow_file.Node], theirs: Any) -> None:
    assert [(node.name, node.kind, node.inputs) for node in mine] == [
        (node.name, node.op, list(node.input)) for node in theirs
    ]
    for node, other in zip(mine, theirs, strict=True):
        assert list(node.attributes) == [each.key for each in other.attr]
        for each in other.attr:
            _compare_value(node.attributes[each.key], each.value)


def _compare_value(mine: Any, theirs: Any) -> None:
    """The value of an attribute is that of the field that protobuf's parser finds set."""
    kind = theirs.WhichOneof("value")
    if kind in ("i", "type"):
        assert mine == getattr(theirs, kind)
    elif kind == "b":
        assert bool(mine) == theirs.b
    elif kind == "s":
        assert mine == theirs.s.decode("utf-8", "replace")
    elif kind == "list":
        assert mine == list(theirs.list.i)
    elif kind == "func":
        assert mine == tensorflow_file.FunctionName(theirs.func.name)
    elif kind == "shape":
        _compare_shape(mine, theirs.shape)
    elif kind == "tensor":
        _compare_shape(mine, theirs.tensor.tensor_shape)
        _compare_numbers(mine, theirs.tensor)
    else:
        assert mine is None


def _compare_shape(mine: TensorInfo, theirs: Any) -> None:
    if mine.shape is None:
        return
    assert not theirs.unknown_rank
    assert [size.factor for size in mine.shape] == [
        each.size if each.size >= 0 else None for each in theirs.dim
    ]


def _compare_numbers(mine: TensorInfo, theirs: Any) -> None:
    """Integers that are known are what numpy finds in the content, or the list, whose last one
    is repeated.
    """
    if not mine.values:
        return
    dtype = np.dtype({3: "<i4", 9: "<i8"}[theirs.dtype])
    listed = list(theirs.int_val if theirs.dtype == 3 else theirs.int64_val) or [0]
    found = (
        np.frombuffer(theirs.tensor_content, dtype).tolist() if theirs.tensor_content else listed
    )
    found += found[-1:] * (len(mine.values) - len(found))
    assert [value.factor for value in mine.values] == found
