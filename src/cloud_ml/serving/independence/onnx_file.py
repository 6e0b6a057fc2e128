"""The graph in an ONNX file, read without its weights: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto.

Sizes and small integers of constants are read, everything else of them is stepped over, so that a model of gigabytes
costs no memory and each byte of structure is looked at once.
"""

import mmap
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from cloud_ml.serving.codecs import wire
from cloud_ml.serving.independence.facts import CONSTANT, MOST_VALUES, Fact, Mixes, constant

_INT32, _INT64, _BOOL = 6, 7, 9
MOST_NODES = 200_000
"""Nodes of a graph that are looked at."""


class Span(NamedTuple):
    """Where a message lies in the file."""

    start: int
    end: int


@dataclass(slots=True)
class Node:
    """One operator. An attribute is a number, text, a list of numbers, or what is known of a tensor."""

    kind: str = ""
    domain: str = ""
    name: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Graph:
    """Nodes in an order in which they can run, constants by name, and which operator set they are from."""

    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, Fact] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)
    opsets: dict[str, int] = field(default_factory=dict)


def read(source: bytes | Path) -> Graph:
    """The graph of a model.

    Raises:
        Mixes: where the file cannot be read as such, or is too large.
    """
    try:
        if isinstance(source, bytes):
            return _model(source, Span(0, len(source)))
        with source.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _model(data, Span(0, len(data)))
    except (OSError, ValueError, struct.error) as error:
        raise Mixes(f"the file cannot be read: {error}") from error


def _model(data: Any, span: Span) -> Graph:
    graph = Graph()
    for number, start, end in _messages(data, *span):
        if number == 7:
            _graph(data, Span(start, end), graph)
        elif number == 8:
            domain, version = "", 0
            for inner, kind, at, stop in wire.fields(data, start, end):
                if inner == 1 and kind == wire.DELIMITED:
                    domain = _text(data, at, stop)
                elif inner == 2 and kind == wire.VARINT:
                    version = _signed(wire.read_varint(data, at, stop)[0])
            graph.opsets["" if domain == "ai.onnx" else domain] = version
        elif number == 25:
            domains = [_text(data, at, stop) for inner, at, stop in _messages(data, start, end) if inner == 10]
            if not domains or domains[-1] in ("", "ai.onnx", "ai.onnx.ml"):
                raise Mixes("a function of the model may stand for an operator of ONNX")
    return graph


def _graph(data: Any, span: Span, graph: Graph) -> None:
    for number, start, end in _messages(data, *span):
        if number == 1:
            if len(graph.nodes) >= MOST_NODES:
                raise Mixes(f"the graph has more than {MOST_NODES} nodes")
            graph.nodes.append(_node(data, Span(start, end)))
        elif number == 5:
            name, fact = tensor(data, Span(start, end))
            graph.constants[name] = fact
        elif number == 12:
            for inner, at, stop in _messages(data, start, end):
                if inner == 1:
                    graph.outputs.append(_text(data, at, stop))
        elif number == 15:
            raise Mixes("the graph has sparse constants")


def _node(data: Any, span: Span) -> Node:
    node = Node()
    for number, start, end in _messages(data, *span):
        if number == 1:
            node.inputs.append(_text(data, start, end))
        elif number == 2:
            node.outputs.append(_text(data, start, end))
        elif number == 3:
            node.name = _text(data, start, end)
        elif number == 4:
            node.kind = _text(data, start, end)
        elif number == 5:
            name, value = _attribute(data, Span(start, end))
            node.attributes[name] = value
        elif number == 7:
            node.domain = _text(data, start, end)
    return node


def _attribute(data: Any, span: Span) -> tuple[str, Any]:
    """Its name and value; None for a value of another kind, such as a graph or a reference to a function's own."""
    name, value = "", None
    integers: list[int] = []
    for number, kind, start, end in wire.fields(data, *span):
        if number == 2 and kind == wire.FIXED32:
            value = struct.unpack("<f", data[start:end])[0]
        elif number == 3 and kind == wire.VARINT:
            value = _signed(wire.read_varint(data, start, end)[0])
        elif number == 8 and kind in (wire.VARINT, wire.DELIMITED):
            integers += _varints(data, kind, start, end)
            value = integers
        elif kind != wire.DELIMITED:
            continue
        elif number == 1:
            name = _text(data, start, end)
        elif number == 4:
            value = _text(data, start, end)
        elif number == 5:
            value = tensor(data, Span(start, end))[1]
    return name, value


def tensor(data: Any, span: Span) -> tuple[str, Fact]:
    """The name of a tensor and what is known of it."""
    name, dims, dtype = "", list[int](), 0
    lists: list[int] = []
    raw: Span | None = None
    outside = False
    for number, kind, start, end in wire.fields(data, *span):
        if number == 2 and kind == wire.VARINT:
            dtype = wire.read_varint(data, start, end)[0]
        elif number in (13, 14):
            outside = True
        elif kind not in (wire.VARINT, wire.DELIMITED):
            continue
        elif number == 1:
            dims += _varints(data, kind, start, end)
        elif number in (5, 7) and len(lists) <= MOST_VALUES and end - start <= 10 * MOST_VALUES:
            lists += _varints(data, kind, start, end)
        elif number == 8 and kind == wire.DELIMITED:
            name = _text(data, start, end)
        elif number == 9 and kind == wire.DELIMITED:
            raw = Span(start, end)
    if any(size < 0 for size in dims):
        return name, CONSTANT
    values = None if outside or len(dims) > 1 else _values(data, dtype, prod(dims), lists, raw)
    return name, constant(dims, values)


def _values(data: Any, dtype: int, count: int, lists: list[int], raw: Span | None) -> list[int] | None:
    if dtype not in (_INT32, _INT64, _BOOL) or count > MOST_VALUES:
        return None
    if raw is not None:
        width = {_INT32: 4, _INT64: 8, _BOOL: 1}[dtype]
        if raw.end - raw.start != width * count:
            return None
        letter = {_INT32: "i", _INT64: "q", _BOOL: "b"}[dtype]
        return list(struct.unpack(f"<{count}{letter}", data[raw.start : raw.end]))
    return lists if len(lists) == count else None


def _messages(data: Any, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The fields that are texts or messages: number, and where the content begins and ends."""
    for number, kind, at, stop in wire.fields(data, start, end):
        if kind == wire.DELIMITED:
            yield number, at, stop


def _varints(data: Any, kind: int, start: int, end: int) -> Iterator[int]:
    """The numbers of a repeated field, one by one or packed."""
    while start < end:
        value, start = wire.read_varint(data, start, end)
        yield _signed(value)
        if kind == wire.VARINT:
            return


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _text(data: Any, start: int, end: int) -> str:
    return bytes(data[start:end]).decode()


def known_operator_sets(graph: Graph, bounds: Mapping[str, tuple[int, int]]) -> None:
    """Refuse operators from sets whose meaning may be another one.

    Raises:
        Mixes: with the set and its version.
    """
    for domain, (oldest, newest) in bounds.items():
        version = graph.opsets.get(domain)
        if version is not None and not oldest <= version <= newest:
            raise Mixes(f"version {version} of the operator set {domain or 'ai.onnx'!r} is not known")
