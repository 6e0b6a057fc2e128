"""REST: rows and columns of several inputs mean what Python's own reader of JSON makes of them,
answered one by one.
"""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np

from fuzz.harness import target
from fuzz.model_world import Transport, World

INPUTS: dict[str, dict[str, tuple[Any, int]]] = {
    "slides": {"keys": (np.int32, 1), "X": (np.float32, 1)},
    "two": {"x": (np.float32, 2), "x2": (np.float32, 2)},
}
_WORLDS: dict[bool, World] = {}


class _Twice(Exception):
    """A name is twice in an object."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise _Twice
    return dict(pairs)


def ask(world: World, bodies: list[bytes]) -> list[tuple[int, Any]]:
    """What callers get who ask in the same turn, each on a connection of its own: status and
    document.
    """
    transports: list[Transport] = []
    for body in bodies:
        connection, transport = world.http1()
        head = b"POST /v1/models/m:predict HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(
            body
        )
        connection.data_received(head + body)
        transports.append(transport)
    world.loop.settle()
    made = []
    for transport in transports:
        head, _, text = transport.written.partition(b"\r\n\r\n")
        made.append((int(head.split(b" ", 2)[1]), json.loads(text)))
    return made


def _single(answer: Any) -> Any:
    """An answer with the numbers that its digits mean as float32: it has as few of them as do."""
    if isinstance(answer, dict):
        return {name: _single(value) for name, value in answer.items()}
    if isinstance(answer, list):
        return [_single(value) for value in answer]
    return float(np.float32(answer)) if isinstance(answer, float) else answer


def expected(body: bytes) -> Any:
    """The answer to a good request; None where it is none, or readers differ: in numbers beyond
    float64 for one.
    """
    try:
        document = json.loads(body, object_pairs_hook=_once)
    except (ValueError, RecursionError, _Twice):
        return None
    if (
        type(document) is not dict
        or document.get("signature_name") not in INPUTS
        or ("inputs" in document) == ("instances" in document)
    ):
        return None
    inputs, value = (
        INPUTS[document["signature_name"]],
        document.get("inputs", document.get("instances")),
    )
    try:
        columns = _columns(inputs, value, rows="instances" in document)
    except (TypeError, ValueError, OverflowError, KeyError):
        return None
    if len({len(each) for each in columns.values()}) != 1:
        return None
    if "inputs" in document:
        return {"outputs": columns}
    return {
        "predictions": [
            dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
        ]
    }


def _columns(inputs: dict[str, Any], value: Any, *, rows: bool) -> dict[str, Any]:
    made = {}
    for name, (dtype, width) in inputs.items():
        column = [row[name] for row in value] if rows else value[name]
        if any(set(row) != set(inputs) for row in (value if rows else [value])):
            raise KeyError(name)
        kinds = {type(each) for cell in column for each in cell}
        if not kinds <= ({int} if dtype is np.int32 else {int, float}):
            raise TypeError
        array = np.array(column, np.float64 if dtype is np.float32 else np.int64)
        if (
            array.ndim != 2
            or array.shape[1] != width
            or not len(array)
            or not np.isfinite(array).all()
        ):
            raise ValueError
        if dtype is np.int32 and not (array == array.astype(dtype)).all():
            raise OverflowError
        with np.errstate(over="ignore"):  # too large for a type is Infinity
            made[f"{name}_"] = array.astype(dtype).astype(np.float64).tolist()
    return made


def _body(luck: random.Random) -> bytes:
    """A request, most often a good one, its names in any order; seldom with a name twice or a
    value that is odd.
    """
    name = luck.choice(list(INPUTS))
    inputs, rows, form = (
        INPUTS[name],
        luck.choice((1, 1, 1, 2, 3)),
        luck.choice(("instances", "inputs")),
    )

    def number(dtype: Any) -> str:
        odd = ("true", '"1"', "null", "1e40", "3000000000", "[1]", "{}", "1.0", "-0", "1e2")
        return (
            luck.choice(odd)
            if luck.random() < 0.02
            else str(luck.randint(-300, 300)) + (".5" if dtype is np.float32 else "")
        )

    def cell(each: str) -> str:
        dtype, width = inputs[each]
        return "[" + ",".join(number(dtype) for _ in range(width)) + "]"

    def together(pairs: list[str]) -> str:
        if luck.random() < 0.05:
            pairs.append(
                luck.choice(pairs).replace("k", "\\u006b")
                if luck.random() < 0.5
                else luck.choice(pairs)
            )
        luck.shuffle(pairs)
        return "{" + ",".join(pairs) + "}"

    if form == "instances":
        value = (
            "["
            + ",".join(together([f'"{each}":{cell(each)}' for each in inputs]) for _ in range(rows))
            + "]"
        )
    else:
        value = together(
            [f'"{each}":[' + ",".join(cell(each) for _ in range(rows)) + "]" for each in inputs]
        )
    return together([f'"signature_name":"{name}"', f'"{form}":{value}']).encode()


@target(
    "serving.rest.predict", "serving.codecs.json_answers",
    seeds=[
        b'{"signature_name":"slides","instances":[{"keys":[1],"X":[1.5]}]}',
        b'{"signature_name":"slides","instances":[{"keys":[1],"keys":[2]},{"X":[1.5],"X":[1]}]}',
        b'{"signature_name":"two","inputs":{"x":[[1,2]],"x2":[[3.5,4]],"x2":[[3,4]]}}',
        b"\x01\x02\x03\x04",
    ],
    words=['"keys":', '"X":[', '"inputs":', '"instances":', "{", "}", "[", "]", ",", "\\u0058", "1e39", "NaN"],
)  # fmt: skip
def model_rows(data: bytes) -> None:
    """A good answer holds what was sent, to every caller of a batch; what is not good is
    refused.
    """
    luck = random.Random(data)
    bodies = [_body(luck) for _ in range(4)] + ([data] if data[:1] == b"{" else [])
    world = _WORLDS.setdefault(True, World())
    for body, (status, answer) in zip(bodies, ask(world, bodies), strict=True):
        expectation = expected(body)
        if expectation is not None:
            assert (status, _single(answer)) == (200, expectation), body
        elif body != data or status != 200:  # what was made up may be a request of another kind
            assert 400 <= status < 500, (status, answer)
