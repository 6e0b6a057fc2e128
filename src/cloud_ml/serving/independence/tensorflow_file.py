"""The graph in a SavedModel, read without its weights and without TensorFlow.

https://github.com/tensorflow/tensorflow/tree/master/tensorflow/core: protobuf/saved_model.proto,
framework/graph.proto.
"""

import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from cloud_ml.serving.codecs import wire
from cloud_ml.serving.independence.message_fields import messages, text, to_signed, varints
from cloud_ml.serving.independence.tensor_info import (
    LARGEST,
    MOST_VALUES,
    NotIndependent,
    TensorInfo,
    constant,
)

_INT32, _INT64 = 3, 9
_SERVE = "serve"
MOST_NODES = 200_000
"""Nodes in the graph and in all functions that are looked at."""


@dataclass(slots=True)
class Node:
    """One operation. An attribute is a number, text, a list of numbers, a function, or what is
    known of a tensor.
    """

    name: str = ""
    kind: str = ""
    inputs: list[str] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FunctionName:
    """An attribute that names a function."""

    name: str


@dataclass(slots=True)
class Function:
    """A function: its arguments, its nodes, and which of their outputs it returns, in order."""

    arguments: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)


@dataclass(slots=True)
class Graph:
    """The graph that is meant to be served, and its functions by name."""

    nodes: list[Node] = field(default_factory=list)
    functions: dict[str, Function] = field(default_factory=dict)


def read(file: Path) -> Graph:
    """The graph of a ``saved_model.pb``.

    Raises:
        NotIndependent: where the file cannot be read as such, or is too large.
    """
    try:
        with (
            file.open("rb") as opened,
            mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            return parse(data)
    except OSError as error:
        raise NotIndependent(f"the file cannot be read: {error}") from error


def parse(data: Any) -> Graph:
    """The same from bytes.

    Raises:
        NotIndependent: as ``read``.
    """
    try:
        # Fields of ``SavedModel`` and ``MetaGraphDef``: ``meta_graphs`` is 2; ``meta_info_def`` 1
        # with ``tags`` 4, and ``graph_def`` 2.
        graphs = [span[1:] for span in messages(data, 0, len(data)) if span[0] == 2]
        if len(graphs) > 1:
            raise NotIndependent("the file has more than one graph")
        for start, end in graphs:
            if _SERVE in _tags(data, start, end):
                return _meta_graph(data, start, end)
    except (ValueError, struct.error) as error:
        raise NotIndependent(f"the file cannot be read: {error}") from error
    raise NotIndependent("there is no graph to serve")


def _tags(data: Any, start: int, end: int) -> list[str]:
    infos = [span[1:] for span in messages(data, start, end) if span[0] == 1]
    return [
        text(data, at, stop)
        for info in infos
        for number, at, stop in messages(data, *info)
        if number == 4
    ]


def _meta_graph(data: Any, start: int, end: int) -> Graph:
    graph, count = Graph(), 0
    # Fields of ``GraphDef``: 1 is ``node``, 2 ``library``, whose 1 is ``function``.
    for inner, first, last in messages(data, *_only(data, start, end, 2)):
        if inner == 1:
            graph.nodes.append(_node(data, first, last))
        elif inner == 2:
            for kind, begin, close in messages(data, first, last):
                if kind == 1:
                    name, function = _function(data, begin, close)
                    if name in graph.functions:
                        raise NotIndependent(f"the graph has two functions {name!r}")
                    graph.functions[name] = function
                    count += len(function.nodes)
        if count + len(graph.nodes) > MOST_NODES:
            raise NotIndependent(f"the graph has more than {MOST_NODES} nodes")
    return graph


def _only(data: Any, start: int, end: int, field_number: int) -> tuple[int, int]:
    """Where the message of this field is; nowhere where it is not there.

    Raises:
        NotIndependent: where it is there twice, which readers merge.
    """
    found = [span[1:] for span in messages(data, start, end) if span[0] == field_number]
    if len(found) > 1:
        raise NotIndependent(f"field {field_number} of a message occurs twice")
    return found[0] if found else (start, start)


def _function(data: Any, start: int, end: int) -> tuple[str, Function]:
    function, name = Function(), ""
    declared: list[str] = []
    returned: dict[str, str] = {}
    # Fields of ``FunctionDef``: 1 is ``signature`` (its ``name`` 1, ``input_arg`` 2, ``output_arg``
    # 3), 3 ``node_def``, 4 ``ret``.
    for inner, first, last in messages(data, *_only(data, start, end, 1)):
        if inner == 1:
            name = text(data, first, last)
        elif inner in (2, 3):
            (function.arguments if inner == 2 else declared).append(_name(data, first, last))
    for number, at, stop in messages(data, start, end):
        if number == 3:
            function.nodes.append(_node(data, at, stop))
        elif number == 4:
            key, value = _entry(data, at, stop)
            returned[key] = text(data, *value)
    function.results = [returned.get(each, "") for each in declared]
    return name, function


def _name(data: Any, start: int, end: int) -> str:
    """The first field of a message, which is its name; the last one counts."""
    found = [text(data, at, stop) for number, at, stop in messages(data, start, end) if number == 1]
    return found[-1] if found else ""


def _entry(data: Any, start: int, end: int) -> tuple[str, tuple[int, int]]:
    """The key of an entry of a map, and where its value is."""
    return _name(data, start, end), _only(data, start, end, 2)


def _node(data: Any, start: int, end: int) -> Node:
    node = Node()
    # Fields of ``NodeDef``: 1 is ``name``, 2 ``op``, 3 ``input``, 5 ``attr``.
    for number, at, stop in messages(data, start, end):
        if number == 1:
            node.name = text(data, at, stop)
        elif number == 2:
            node.kind = text(data, at, stop)
        elif number == 3:
            node.inputs.append(text(data, at, stop))
        elif number == 5:
            key, value = _entry(data, at, stop)
            if key in node.attributes:
                raise NotIndependent(f"operation {node.name!r} has two attributes {key!r}")
            node.attributes[key] = _attribute(data, *value)
    return node


def _attribute(data: Any, start: int, end: int) -> Any:
    """The value of an attribute.

    Raises:
        NotIndependent: where there are several, of which the last one counts, or which readers
            merge.
    """
    # The fields of the ``oneof`` of ``AttrValue``: of these, the last one counts, but messages of
    # the same field are merged.
    given = [each for each in wire.fields(data, start, end) if each[0] <= 10]
    if len(given) > 1:
        raise NotIndependent("an attribute has several values")
    if not given:
        return None
    number, kind, at, stop = given[0]
    if number in (3, 5, 6) and kind == wire.VARINT:  # a number, a truth value, a type
        return to_signed(wire.read_varint(data, at, stop)[0])
    read = _READERS.get(number)
    return read(data, at, stop) if read is not None and kind == wire.DELIMITED else None


def _integers(data: Any, start: int, end: int) -> list[int]:
    """The integers of a list."""
    return [
        each
        for inner, form, first, last in wire.fields(data, start, end)
        if inner == 3 and form in (wire.VARINT, wire.DELIMITED)
        for each in varints(data, form, first, last)
    ]


def _shape(data: Any, start: int, end: int) -> list[int] | None:
    sizes: list[int] = []
    for number, kind, at, stop in wire.fields(data, start, end):
        if number == 2 and kind == wire.DELIMITED:
            found = [
                wire.read_varint(data, first, last)[0]
                for inner, form, first, last in wire.fields(data, at, stop)
                if inner == 1 and form == wire.VARINT
            ]
            sizes.append(to_signed(found[-1]) if found else 0)
        elif number == 3 and kind == wire.VARINT and wire.read_varint(data, at, stop)[0]:
            return None
    return sizes


def tensor(data: Any, start: int, end: int) -> TensorInfo:
    """What is known of a constant: its shape, and its values where they are few integers."""
    dtype = 0
    content: tuple[int, int] | None = None
    lists: dict[int, list[int]] = {7: [], 10: []}
    certain = True
    sizes = _shape(data, *_only(data, start, end, 2))
    # Fields of ``TensorProto``: 1 is ``dtype``, 2 ``tensor_shape``, 4 ``tensor_content``, 7
    # ``int_val``, 10 ``int64_val``.
    for number, kind, at, stop in wire.fields(data, start, end):
        if number == 1 and kind == wire.VARINT:
            dtype = wire.read_varint(data, at, stop)[0]
        elif number == 4 and kind == wire.DELIMITED:
            content = (at, stop)
        elif number in (7, 10) and kind in (wire.VARINT, wire.DELIMITED):
            # A varint has at most 10 bytes: a longer field holds more values than are remembered.
            certain &= stop - at <= 10 * MOST_VALUES and len(lists[number]) <= MOST_VALUES
            if certain:
                lists[number] += varints(data, kind, at, stop)
    if sizes is None or not certain or any(size < 0 for size in sizes):
        return constant(sizes)
    listed = lists[10 if dtype == _INT64 else 7]
    return constant(sizes, _values(data, dtype, sizes, listed, content))


def _values(
    data: Any, dtype: int, sizes: list[int], listed: list[int], content: tuple[int, int] | None
) -> list[int] | None:
    # Two dimensions, since paddings are a matrix of pairs.
    if dtype not in (_INT32, _INT64) or len(sizes) > 2:
        return None
    count = prod(sizes)
    if count > MOST_VALUES:
        return None
    if content is not None and content[1] > content[0]:
        width, letter = (4, "i") if dtype == _INT32 else (8, "q")
        if content[1] - content[0] != width * count:
            return None
        return list(struct.unpack(f"<{count}{letter}", data[content[0] : content[1]]))
    if len(listed) > count or (dtype == _INT32 and any(abs(each) > LARGEST for each in listed)):
        return None
    return listed + (listed[-1:] or [0]) * (
        count - len(listed)
    )  # as in TensorFlow, the last one stands for the others


_READERS: dict[int, Callable[[Any, int, int], Any]] = {
    1: _integers,
    2: lambda data, start, end: bytes(data[start:end]).decode("utf-8", "replace"),
    7: lambda data, start, end: constant(_shape(data, start, end)),
    8: tensor,
    10: lambda data, start, end: FunctionName(_name(data, start, end)),
}
"""How the values of attributes are read, by the numbers of their fields."""
