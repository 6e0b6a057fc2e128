"""Files of models that two readers read differently: they are not proven, whatever one of them
would see.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from cloud_ml.serving.codecs import wire
from cloud_ml.serving.independence import onnx_graph, tensorflow_file, tensorflow_graph
from cloud_ml.serving.independence.tensor_info import NotIndependent
from cloud_ml.serving.runtimes.base import DEFAULT_SIGNATURE
from cloud_ml.serving.runtimes.onnx import OnnxModel
from cloud_ml.serving.runtimes.tensorflow import described
from support.onnx_graphs import FLOAT, INT64, model, node
from support.tensorflow_graphs import const, save, saved
from support.tensorflow_graphs import node as operation


def _zero_or_one(value: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(value), "")


def _sum_along(*attributes: AttributeProto) -> onnx.ModelProto:
    """A cumulative sum along the axis of a constant with these attributes."""
    made = model([node("Constant", [], ["a"]), node("CumSum", ["x", "a"], ["y"])])
    made.graph.node[0].attribute.extend(attributes)
    return made


def _with(made: onnx.ModelProto, attribute: bytes) -> bytes:
    """The model, whose first node has only this attribute, in just these bytes."""
    first, *others = made.graph.node
    del first.attribute[:]
    nodes = [
        first.SerializeToString() + wire.encode_delimited(5, attribute),
        *(each.SerializeToString() for each in others),
    ]
    del made.graph.node[:]
    graph = (
        b"".join(wire.encode_delimited(1, each) for each in nodes) + made.graph.SerializeToString()
    )
    made.ClearField("graph")
    return made.SerializeToString() + wire.encode_delimited(7, graph)


def _value(*tensors: bytes, type_: int = AttributeProto.TENSOR, extra: bytes = b"") -> bytes:
    named = wire.encode_delimited(1, b"value") + wire.key(20, wire.VARINT) + wire.varint(type_)
    return named + b"".join(wire.encode_delimited(5, each) for each in tensors) + extra


def _softmax(attribute: bytes) -> bytes:
    return _with(model([node("Softmax", ["x"], ["y"])]), attribute)


_AXIS = helper.make_attribute("axis", 1).SerializeToString()
_ONE, _ZERO = _zero_or_one(1), _zero_or_one(0)
_RAW = TensorProto(raw_data=np.int64(0).tobytes()).SerializeToString()
_LISTED = TensorProto(data_type=INT64, int64_data=[1]).SerializeToString()


def _twice_the_attribute() -> bytes:
    made = model([node("Softmax", ["x"], ["y"], axis=0)])
    made.graph.node[0].attribute.append(helper.make_attribute("axis", 1))
    return made.SerializeToString()


def _two_graphs() -> bytes:
    made = model([node("Relu", ["x"], ["y"])])
    return made.SerializeToString() + wire.encode_delimited(7, b"")


def _two_constants() -> bytes:
    made = model([node("CumSum", ["x", "a"], ["y"])], {"a": np.int64(1)})
    made.graph.initializer.append(numpy_helper.from_array(np.array(0), "a"))
    return made.SerializeToString()


def _number_of_64_bits() -> bytes:
    """An integer of 32 bits that is written with 64: other readers cut it, which leaves 0."""
    nodes = [
        node("Cast", ["c"], ["d"], to=INT64),
        node("Div", ["d", "k"], ["a"]),
        node("CumSum", ["x", "a"], ["y"]),
    ]
    made = model(nodes, {"k": np.int64(1 << 32)})
    tensor = TensorProto(
        name="c", data_type=TensorProto.INT32
    ).SerializeToString() + wire.encode_delimited(5, wire.varint(1 << 32))
    graph = made.graph.SerializeToString() + wire.encode_delimited(5, tensor)
    made.ClearField("graph")
    return made.SerializeToString() + wire.encode_delimited(7, graph)


ONNX: dict[str, tuple[Callable[[], bytes], str]] = {
    "a constant with two values": (
        lambda: _sum_along(
            helper.make_attribute("value", _ONE), helper.make_attribute("value_int", 0)
        ).SerializeToString(),
        "more than one value",
    ),
    "a constant without a value": (
        lambda: _sum_along().SerializeToString(),
        "more than one value, or none",
    ),
    "an attribute twice": (_twice_the_attribute, "two attributes 'axis'"),
    "a number behind a tensor": (
        lambda: _with(
            _sum_along(),
            _value(_ZERO.SerializeToString(), extra=wire.key(3, wire.VARINT) + wire.varint(1)),
        ),
        "not of its type",
    ),
    "a tensor in two parts": (lambda: _with(_sum_along(), _value(_RAW, _LISTED)), "occurs twice"),
    "a number twice": (
        lambda: _softmax(_AXIS + wire.key(3, wire.VARINT) + wire.varint(0)),
        "occurs twice",
    ),
    "a field number beyond 29 bits": (
        lambda: _softmax(_AXIS + bytes([0x98, 0x80, 0x80, 0x80, 0x10]) + wire.varint(0)),
        "a field without a number",
    ),
    "a field number of more bytes than five": (
        lambda: _softmax(_AXIS + bytes([0x98, 0x80, 0x80, 0x80, 0x80, 0x00]) + wire.varint(0)),
        "a field without a number",
    ),
    "a number written as a text": (
        lambda: _softmax(
            wire.encode_delimited(1, b"axis")
            + wire.key(20, wire.VARINT)
            + b"\x02"
            + wire.encode_delimited(3, b"\x01")
        ),
        "of another kind",
    ),
    "two graphs": (_two_graphs, "more than one graph"),
    "a constant twice": (_two_constants, "two constants 'a'"),
    "a number of 64 bits among those of 32": (_number_of_64_bits, "not a constant"),
}


@pytest.mark.parametrize("name", ONNX)
def test_an_ambiguous_onnx_file_is_not_proven(name: str) -> None:
    made, reason = ONNX[name]
    plain = model([node("Relu", ["x"], ["y"])], dtype=FLOAT).SerializeToString()
    signature = OnnxModel({DEFAULT_SIGNATURE: plain}).signatures[DEFAULT_SIGNATURE]
    with pytest.raises(NotIndependent, match=reason):
        onnx_graph.check(made(), signature)


def test_a_value_that_a_writer_left_out_is_the_default_of_its_type() -> None:
    zero = (
        wire.encode_delimited(1, b"axis")
        + wire.key(20, wire.VARINT)
        + wire.varint(AttributeProto.INT)
    )
    data = _softmax(zero)
    loaded = OnnxModel({DEFAULT_SIGNATURE: data})
    assert loaded.evidence[DEFAULT_SIGNATURE].reason.endswith("it works along the rows")


def _relu() -> bytes:
    return saved([operation("Relu", "y", "x")])


def _with_value(extra: bytes) -> bytes:
    """A sum along an axis, whose constant has more behind its value."""
    data = saved([const("a", 1), operation("Cumsum", "y", "x", "a")])
    size, start = wire.read_varint(data, data.index(b"\x0a\x05value\x12") + 8, len(data))
    value = data[start : start + size]
    return _replaced(data, value, value + extra)


def _replaced(data: bytes, old: bytes, new: bytes) -> bytes:
    """A message in which the field with these bytes has others, wherever it lies: all lengths
    are written again.
    """
    out = b""
    for number, kind, start, end in wire.fields(data, 0, len(data)):
        content = data[start:end]
        if kind != wire.DELIMITED:
            out += wire.key(number, kind) + content
            continue
        inside = content != old and old in content
        content = _replaced(content, old, new) if inside else content.replace(old, new)
        out += wire.encode_delimited(number, content)
    return out


def _two_in_one() -> bytes:
    """Another part of the same graph, which readers merge with the first."""
    start, end = next(each[2:] for each in wire.fields(_relu(), 0, len(_relu())) if each[0] == 2)
    return wire.encode_delimited(2, _relu()[start:end] + wire.encode_delimited(2, b""))


SAVED: dict[str, tuple[Callable[[], bytes], str]] = {
    "two values of an attribute": (
        lambda: _with_value(wire.key(3, wire.VARINT) + wire.varint(0)),
        "several values",
    ),
    "two meta graphs": (lambda: _relu() + wire.encode_delimited(2, b""), "more than one graph"),
    "two graphs in one": (_two_in_one, "occurs twice"),
}


@pytest.mark.parametrize("name", SAVED)
def test_an_ambiguous_saved_model_is_not_proven(name: str, tmp_path: Path) -> None:
    made, reason = SAVED[name]
    signature = described.signatures(save(tmp_path, _relu()))["serving_default"]
    with pytest.raises(NotIndependent, match=reason):
        tensorflow_graph.check(tensorflow_file.parse(made()), signature)
