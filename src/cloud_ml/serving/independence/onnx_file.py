"""The graph in an ONNX file, read without its weights:
https://github.com/onnx/onnx/blob/main/onnx/onnx.proto.

Sizes and small integers of constants are read, everything else of them is stepped over, so that a
model of gigabytes costs no memory and each byte of structure is looked at once.
"""

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from cloud_ml.serving.codecs import wire
from cloud_ml.serving.independence.message_fields import messages, text, to_signed, varints
from cloud_ml.serving.independence.tensor_info import (
    CONSTANT,
    LARGEST,
    MOST_VALUES,
    NotIndependent,
    TensorInfo,
    constant,
)

_INT32, _INT64, _BOOL = 6, 7, 9
_FLOAT, _INT, _STRING, _TENSOR, _INTS = 1, 2, 3, 4, 7
_UNSET: dict[int, Any] = {_FLOAT: 0.0, _INT: 0, _STRING: ""}
"""The values of attributes where the file has none."""
_OF_LISTS = (wire.VARINT, wire.DELIMITED)
_VALUES = {
    1: 2,
    2: 3,
    3: 4,
    4: 5,
    5: 6,
    6: 7,
    7: 8,
    8: 9,
    9: 10,
    10: 11,
    11: 22,
    12: 23,
    13: 14,
    14: 15,
}
"""Types of attributes, and the number of the field that holds the value."""
_SINGLE = frozenset({1, 2, 3, 4, 5, 6, 14, 20, 21, 22})
"""Fields of an attribute that must not occur twice: readers merge them, or take the first, or
the last.
"""
_KINDS = {
    1: (wire.DELIMITED,),
    2: (wire.FIXED32,),
    3: (wire.VARINT,),
    4: (wire.DELIMITED,),
    5: (wire.DELIMITED,),
    8: _OF_LISTS,
    20: (wire.VARINT,),
}
"""How the fields of an attribute are written: readers pass over others, as if they were not
there.
"""
MOST_NODES = 200_000
"""Nodes of a graph that are looked at."""


class Span(NamedTuple):
    """Where a message lies in the file."""

    start: int
    end: int


@dataclass(slots=True)
class Node:
    """One operator. An attribute is a number, text, a list of numbers, or what is known of a
    tensor.
    """

    kind: str = ""
    domain: str = ""
    name: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Graph:
    """Nodes in an order in which they can run, constants by name, and which operator set they
    are from.
    """

    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, TensorInfo] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)
    opsets: dict[str, int] = field(default_factory=dict)


def read(source: bytes | Path) -> Graph:
    """The graph of a model.

    Raises:
        NotIndependent: where the file cannot be read as such, or is too large.
    """
    try:
        if isinstance(source, bytes):
            return _model(source, Span(0, len(source)))
        with (
            source.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            return _model(data, Span(0, len(data)))
    except (OSError, ValueError, struct.error) as error:
        raise NotIndependent(f"the file cannot be read: {error}") from error


def _model(data: Any, span: Span) -> Graph:
    graph = Graph()
    graphs = 0
    # Fields of ``ModelProto``: 7 is ``graph``, 8 ``opset_import``, 25 ``functions``.
    for number, start, end in messages(data, *span):
        if number == 7:
            graphs += 1
            if graphs > 1:
                raise NotIndependent("the file has more than one graph")
            _graph(data, Span(start, end), graph)
        elif number == 8:
            domain, version = "", 0
            for inner, kind, at, stop in wire.fields(data, start, end):
                if inner == 1 and kind == wire.DELIMITED:
                    domain = text(data, at, stop)
                elif inner == 2 and kind == wire.VARINT:
                    version = to_signed(wire.read_varint(data, at, stop)[0])
            # Both are names of the same set.
            domain = "" if domain == "ai.onnx" else domain
            if domain in graph.opsets:
                raise NotIndependent(
                    f"the file names the operator set {domain or 'ai.onnx'!r} twice"
                )
            graph.opsets[domain] = version
        elif number == 25:
            domains = [
                text(data, at, stop)
                for inner, at, stop in messages(data, start, end)
                if inner == 10
            ]
            # Whether a function or the operator of the same name counts is left to the runtime
            # (``onnx.proto``). The last value of a field counts, as protocol buffers have it.
            if not domains or domains[-1] in ("", "ai.onnx", "ai.onnx.ml"):
                raise NotIndependent("a function of the model may stand for an operator of ONNX")
    return graph


def _graph(data: Any, span: Span, graph: Graph) -> None:
    # Fields of ``GraphProto``: 1 is ``node``, 5 ``initializer``, 12 ``output``, 15
    # ``sparse_initializer``.
    for number, start, end in messages(data, *span):
        if number == 1:
            if len(graph.nodes) >= MOST_NODES:
                raise NotIndependent(f"the graph has more than {MOST_NODES} nodes")
            graph.nodes.append(_node(data, Span(start, end)))
        elif number == 5:
            name, info = tensor(data, Span(start, end))
            if name in graph.constants:
                raise NotIndependent(f"the graph has two constants {name!r}")
            graph.constants[name] = info
        elif number == 12:
            for inner, at, stop in messages(data, start, end):
                if inner == 1:
                    graph.outputs.append(text(data, at, stop))
        elif number == 15:
            raise NotIndependent("the graph has sparse constants")


def _node(data: Any, span: Span) -> Node:
    node = Node()
    # Fields of ``NodeProto``: 1 is ``input``, 2 ``output``, 3 ``name``, 4 ``op_type``, 5
    # ``attribute``, 7 ``domain``.
    for number, start, end in messages(data, *span):
        if number == 1:
            node.inputs.append(text(data, start, end))
        elif number == 2:
            node.outputs.append(text(data, start, end))
        elif number == 3:
            node.name = text(data, start, end)
        elif number == 4:
            node.kind = text(data, start, end)
        elif number == 5:
            name, value = _attribute(data, Span(start, end))
            if name in node.attributes:
                raise NotIndependent(f"operator {node.kind} has two attributes {name!r}")
            node.attributes[name] = value
        elif number == 7:
            node.domain = text(data, start, end)
    return node


def _attribute(data: Any, span: Span) -> tuple[str, Any]:
    """Its name and value; None for a value of another kind, such as a graph or a reference to a
    function's own.

    Raises:
        NotIndependent: where it has values of several types, of which readers may take one or
            another.
    """
    name, type_ = "", 0
    given: dict[int, list[tuple[int, Span]]] = {}
    for number, kind, start, end in wire.fields(data, *span):
        if number in _SINGLE and number in given:
            raise NotIndependent(f"field {number} of an attribute occurs twice")
        if kind not in _KINDS.get(number, (kind,)):
            raise NotIndependent(f"field {number} of an attribute is of another kind")
        given.setdefault(number, []).append((kind, Span(start, end)))
    if 1 in given:
        name = text(data, *given[1][0][1])
    if 20 in given:
        type_ = wire.read_varint(data, *given[20][0][1])[0]
    if given.keys() & set(_VALUES.values()) - {_VALUES.get(type_)}:
        raise NotIndependent(f"attribute {name!r} has a value that is not of its type")
    return name, _value(data, type_, given.get(_VALUES.get(type_, 0), []))


def _value(data: Any, type_: int, given: list[tuple[int, Span]]) -> Any:
    """The value of an attribute, from the fields that are of its type."""
    if type_ == _INTS:
        return [each for kind, span in given for each in varints(data, kind, *span)]
    if not given:
        return _UNSET.get(type_)
    span = given[0][1]
    if type_ == _FLOAT:
        return struct.unpack("<f", data[span.start : span.end])[0]
    if type_ == _INT:
        return to_signed(wire.read_varint(data, *span)[0])
    if type_ == _STRING:
        return bytes(data[span.start : span.end]).decode("utf-8", "replace")
    return tensor(data, span)[1] if type_ == _TENSOR else None


def tensor(data: Any, span: Span) -> tuple[str, TensorInfo]:
    """The name of a tensor and what is known of it."""
    fields = _TensorFields()
    for number, kind, start, end in wire.fields(data, *span):
        fields.take(data, number, kind, Span(start, end))
    if any(size < 0 for size in fields.dims):
        return fields.name, CONSTANT
    return fields.name, constant(fields.dims, fields.values(data))


@dataclass
class _TensorFields:
    """The fields of a ``TensorProto`` that matter.

    Attributes:
        lists: The numbers of lists, by the number of the field.
        raw: Where they are as bytes.
        certain: Whether the values may be looked at: they are here, and few.
    """

    name: str = ""
    dtype: int = 0
    dims: list[int] = field(default_factory=list)
    lists: dict[int, list[int]] = field(default_factory=dict)
    raw: Span | None = None
    certain: bool = True

    def take(self, data: Any, number: int, kind: int, span: Span) -> None:
        # 1 is ``dims``, 2 ``data_type``, 5 ``int32_data``, 7 ``int64_data``, 8 ``name``,
        # 9 ``raw_data``, 13 ``external_data``, 14 ``data_location``.
        if number == 2 and kind == wire.VARINT:
            self.dtype = wire.read_varint(data, *span)[0]
        elif number in (13, 14):
            self.certain = False  # the values are in another file
        elif kind in _OF_LISTS:
            self._take_list(data, number, kind, span)

    def _take_list(self, data: Any, number: int, kind: int, span: Span) -> None:
        """Take a field of numbers or bytes."""
        if number == 1:
            self.dims += varints(data, kind, *span)
        elif number in (5, 7):
            self._take_numbers(data, number, kind, span)
        elif number == 8 and kind == wire.DELIMITED:
            self.name = text(data, *span)
        elif number == 9 and kind == wire.DELIMITED:
            self.raw = span

    def _take_numbers(self, data: Any, number: int, kind: int, span: Span) -> None:
        before = self.lists.get(number, ())
        # A varint has at most 10 bytes: a longer field holds more values than are remembered.
        short = span.end - span.start <= 10 * MOST_VALUES
        self.certain &= len(before) <= MOST_VALUES and short
        if self.certain:
            self.lists.setdefault(number, []).extend(varints(data, kind, *span))

    def values(self, data: Any) -> list[int] | None:
        """The values of a number or a vector, where they are known."""
        if not self.certain or len(self.dims) > 1:
            return None
        listed = self.lists.get(7 if self.dtype == _INT64 else 5, [])
        return _values(data, self.dtype, prod(self.dims), listed, self.raw)


def _values(
    data: Any, dtype: int, count: int, listed: list[int], raw: Span | None
) -> list[int] | None:
    if dtype not in (_INT32, _INT64, _BOOL) or count > MOST_VALUES:
        return None
    if raw is not None:
        width, letter = {_INT32: (4, "i"), _INT64: (8, "q"), _BOOL: (1, "b")}[dtype]
        if raw.end - raw.start != width * count:
            return None
        listed = list(struct.unpack(f"<{count}{letter}", data[raw.start : raw.end]))
    # A number of 64 bits in a list of 32: some readers cut it, others keep it.
    if len(listed) != count or (dtype != _INT64 and any(abs(each) > LARGEST for each in listed)):
        return None
    # True may be written as any number but 0.
    return [int(each != 0) for each in listed] if dtype == _BOOL else listed


def known_operator_sets(graph: Graph, bounds: Mapping[str, tuple[int, int]]) -> None:
    """Refuse operators from sets whose meaning may be another one.

    Raises:
        NotIndependent: with the set and its version.
    """
    for domain, (oldest, newest) in bounds.items():
        version = graph.opsets.get(domain)
        if version is not None and not oldest <= version <= newest:
            raise NotIndependent(
                f"version {version} of the operator set {domain or 'ai.onnx'!r} is not known"
            )
