"""Requests of several callers that share what a server has learnt: each is answered as if it were
the only one ever.

The bytes of an input are decisions: which model, which encoding of which values, which order of
which fields, what is there twice, what is missing, where it is cut. One server answers all of them;
another reads each by the library alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from cloud_ml.serving import dtypes
from cloud_ml.serving.codecs import tensor_proto, wire
from cloud_ml.serving.dtypes import DType
from cloud_ml.serving.grpc.prediction import Prediction
from cloud_ml.serving.runtimes.base import Array
from fuzz.harness import target
from fuzz.model_world import PREDICT, World

MODELS = (b"m", b"n")
VERSIONS = (("m", 1), ("n", 1), ("n", 2))
INPUTS = {
    "": ["x"],
    "two": ["x", "x2"],
    "mixed": ["x", "k"],
    "slides": ["keys", "X"],
    "whole": ["a", "b", "c", "d"],
    "text": ["t"],
    "half": ["h"],
    "truth": ["b"],
    "fixed": ["f"],
}
TYPES = {
    "x": (dtypes.FLOAT, (2,)),
    "x2": (dtypes.FLOAT, (2,)),
    "k": (dtypes.INT64, ()),
    "keys": (dtypes.INT32, (1,)),
    "X": (dtypes.FLOAT, (1,)),
    "a": (dtypes.INT8, ()),
    "b": (dtypes.UINT16, ()),
    "c": (dtypes.UINT32, ()),
    "d": (dtypes.UINT64, ()),
    "t": (dtypes.STRING, ()),
    "h": (dtypes.HALF, ()),
    "f": (dtypes.DOUBLE, ()),
}
REQUESTS = 5
SEEDS = [bytes(random.Random(seed).randbytes(380)) for seed in range(12)]


class Decisions:
    """Numbers out of bytes; 0 when these are used up."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def below(self, bound: int) -> int:
        self._at += 1
        return self._data[self._at - 1] % bound if self._at <= len(self._data) else 0

    def seldom(self) -> bool:
        return self.below(16) == 15

    def order(self, parts: list[bytes]) -> bytes:
        """The parts in some order; seldom with one of them twice or missing."""
        if parts and self.seldom():
            parts.append(parts[self.below(len(parts))])
        if parts and self.seldom():
            parts.pop(self.below(len(parts)))
        made = []
        while parts:
            made.append(parts.pop(self.below(len(parts))))
        return b"".join(made)


def _number(choose: Decisions, dtype: DType) -> int:
    wide = (
        0,
        1,
        127,
        128,
        255,
        300,
        32767,
        65535,
        1 << 20,
        (1 << 31) - 1,
        (1 << 32) - 1,
        (1 << 63) + 5,
        (1 << 64) - 1,
    )
    return wide[choose.below(len(wide))] if choose.below(2) else choose.below(100)


def _varint(choose: Decisions, value: int) -> bytes:
    """A number, seldom with more bytes than it needs, or with more bits than there are."""
    data = wire.varint(value)
    if choose.seldom() and len(data) < 10:
        return (
            data[:-1]
            + bytes((data[-1] | 0x80,))
            + b"\x80" * choose.below(9 - len(data) + 1)
            + b"\0"
        )
    return data[:-1] + b"\x7f" if choose.seldom() else data


def _tensor(choose: Decisions, signature: str, name: str, rows: int) -> bytes:
    dtype, tail = TYPES[name] if signature != "truth" else (dtypes.BOOL, ())
    shape = (rows, *tail)
    count = int(np.prod(shape))
    header = [
        wire.key(1, wire.VARINT) + wire.varint(dtype.number),
        tensor_proto.header(dtype, shape)[
            len(wire.key(1, wire.VARINT) + wire.varint(dtype.number)) :
        ],
    ]
    if choose.seldom():
        header.append(wire.key(3, wire.VARINT) + b"\x01")
    return choose.order([*header, _values(choose, dtype, count)])


def _values(choose: Decisions, dtype: DType, count: int) -> bytes:
    number = tensor_proto.payload_field(dtype)
    if dtype is dtypes.STRING:
        return b"".join(wire.encode_delimited(number, b"s" * choose.below(5)) for _ in range(count))
    if choose.seldom():
        count = max(0, count - 1)  # filled up, or too few
    given = [_number(choose, dtype) for _ in range(count)]
    array: Array = np.array([value % 256 for value in given], np.uint8).astype(dtype.numpy)
    raw, form = array.tobytes(), choose.below(3)
    if form == 0:
        return wire.encode_delimited(4, raw)
    if dtype.packed_raw and dtype is not dtypes.BOOL:
        kind, width = (wire.FIXED32, 4) if dtype is dtypes.FLOAT else (wire.FIXED64, 8)
        single = b"".join(
            wire.key(number, kind) + raw[at : at + width] for at in range(0, len(raw), width)
        )
        return wire.encode_delimited(number, raw) if form == 1 else single
    varints = [_varint(choose, value) for value in given]
    if form == 1:
        return wire.encode_delimited(number, b"".join(varints))
    return b"".join(wire.key(number, wire.VARINT) + each for each in varints)


def _request(choose: Decisions) -> bytes:
    name = list(INPUTS)[choose.below(len(INPUTS))]
    spec = [
        wire.encode_delimited(1, MODELS[choose.below(2)]),
        wire.encode_delimited(3, name.encode()),
    ]
    if choose.seldom():
        spec.append(
            wire.encode_delimited(2, wire.key(1, wire.VARINT) + wire.varint(choose.below(3)))
        )
    if choose.seldom():
        spec.append(wire.encode_delimited(4, b"stable"))
    rows = choose.below(3) + 1 if name != "fixed" else 2
    fields = [wire.encode_delimited(1, choose.order(spec))]
    for each in INPUTS[name]:
        given = rows + 1 if choose.seldom() else rows
        other = (
            "truth" if each == "b" and choose.seldom() else name
        )  # the same name with another type
        entry = [
            wire.encode_delimited(1, each.encode()),
            wire.encode_delimited(2, _tensor(choose, other, each, given)),
        ]
        fields.append(wire.encode_delimited(2, choose.order(entry)))
    if choose.below(4) == 3:
        fields.append(wire.encode_delimited(3, INPUTS[name][0].encode() + b"_"))
    if choose.seldom():
        fields.append(
            (b"\x9b\x06\x9c\x06", b"\x78\x01", b"\x7a\x02ab", b"\x12\x00")[choose.below(4)]
        )
    made = bytearray(choose.order(fields))
    if made and choose.seldom():
        made[choose.below(255) % len(made)] = choose.below(256)
    if made and choose.seldom():
        del made[choose.below(255) % len(made) :]
    return bytes(made)


def requests_of(data: bytes) -> list[bytes]:
    """Some requests, each with its neighbours: one with another decision, and some with another
    byte or one more.
    """
    choose, made = Decisions(data), []
    for _ in range(REQUESTS):
        decisions = bytearray(choose.below(256) for _ in range(60))
        if choose.below(4):  # mostly no mistakes to begin with
            decisions = bytearray(each & 0xEE for each in decisions)
        made.append(_request(Decisions(decisions)))
        decisions[choose.below(len(decisions))] = choose.below(256)
        made.append(_request(Decisions(decisions)))
        made += [_changed(made[-1 - each], choose) for each in range(2)]
    return made


def _changed(message: bytes, choose: Decisions) -> bytes:
    """A message with a byte that is another, often one that means something."""
    changed = bytearray(message)
    if changed:
        byte = choose.below(256)
        telling = (0, 1, 2, 0x7F, 0x80, 0x81, 0xFF, 0x0A, 0x12, 0x22, 0x38, 0x2D, 0x42)
        changed[choose.below(256) % len(changed)] = (
            telling[byte % len(telling)] if choose.below(2) else byte
        )
    return bytes(changed)


def _by_library() -> Callable[[bytes], tuple[int, bytes]]:
    """How a server answers that has learnt nothing."""
    world = World(VERSIONS)
    prediction: Any = world.methods[PREDICT]
    owner = prediction.__self__
    assert isinstance(owner, Prediction)
    read, forget = owner._read, owner._forget

    def alone(message: bytes) -> tuple[int, bytes]:
        forget()
        world.methods[PREDICT] = read
        try:
            return world.call(PREDICT, message)
        finally:
            world.methods[PREDICT] = prediction

    return alone


_alone = _by_library()


@target(
    "serving.codecs.predict_parts", "serving.codecs.tensor_values", "serving.codecs.value_lists",
    seeds=SEEDS,
    words=[bytes((15,)), bytes((0,)), bytes((1, 1, 1)), bytes((2, 2))],
)  # fmt: skip
def model_encodings(data: bytes) -> None:
    """Every request gets the answer, or the error, that the library's reading of it alone gives."""
    messages = requests_of(data)
    expected = [_alone(each) for each in messages]
    assert all(status not in (2, 13) for status, _ in expected), expected
    world = World(VERSIONS)
    for message, answer in zip(messages, expected, strict=True):
        assert world.call(PREDICT, message) == answer
    assert world.calls(PREDICT, messages[::-1]) == expected[::-1]  # all of them in one batch
