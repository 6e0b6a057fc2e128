"""``PredictResponse``, laid out once for each size and filled in for each caller."""

from collections.abc import Sequence
from math import prod

from cloud_ml.serving import dtypes
from cloud_ml.serving.batching import Outcome
from cloud_ml.serving.codecs import tensor_proto, wire
from cloud_ml.serving.signatures import Shape, Signature, TensorSpec

KEPT = 64
"""Numbers of rows for which the layout is kept."""
KEPT_LEADS = 256
"""Beginnings of outputs that are kept, of those whose length depends on their values."""


class PredictAnswer:
    """Writes answers to calls of one signature of one version that want the same outputs.

    ``spec`` is the model spec that the answer repeats, as a message.
    """

    def __init__(self, signature: Signature, wanted: Sequence[int], spec: bytes) -> None:
        self._signature = signature
        self._wanted = tuple(wanted)
        self._tail = wire.delimited(2, spec)
        outputs = [signature.outputs[place] for place in wanted]
        self._quick = signature.batched and all(
            each.dtype.packed_raw and each.shape is not None and -1 not in each.shape[1:] for each in outputs
        )
        self._made: dict[int, tuple[list[tuple[bytes, int, int]], int]] = {}
        self._leads: dict[tuple[int, Shape, int], bytes] = {}

    def parts(self, outcome: Outcome, first: int, rows: int) -> tuple[tuple[bytes, ...], int]:
        """The message in pieces, and its length: the rows of one caller."""
        if not self._quick or not rows:
            return self._varying(outcome, first, rows)
        made = self._made.get(rows)
        if made is None:
            made = self._lay_out(rows)
        layout, size = made
        parts: list[bytes] = []
        for lead, place, width in layout:
            raw = outcome.raw(place)
            parts += (lead, raw[first * width : (first + rows) * width] if len(raw) != rows * width else raw)
        parts.append(self._tail)
        return tuple(parts), size

    def _lay_out(self, rows: int) -> tuple[list[tuple[bytes, int, int]], int]:
        layout, size = [], len(self._tail)
        for place in self._wanted:
            spec = self._signature.outputs[place]
            shape: Shape = (rows, *(spec.shape or ())[1:])
            width = prod(shape[1:]) * spec.dtype.size
            lead = _entry(spec, shape, rows * width)
            layout.append((lead, place, width))
            size += len(lead) + rows * width
        if len(self._made) >= KEPT:
            self._made.clear()
        self._made[rows] = layout, size
        return layout, size

    def _varying(self, outcome: Outcome, first: int, rows: int) -> tuple[tuple[bytes, ...], int]:
        """The same, where the length of an output depends on its values or its shape."""
        parts: list[bytes] = []
        size = len(self._tail)
        for place in self._wanted:
            array = outcome.arrays[place]
            if self._signature.batched:
                shape = (rows, *array.shape[1:])
                content = _rows(self._signature.outputs[place], outcome, place, first, rows)
            else:
                shape = array.shape
                content = tensor_proto.packed(self._signature.outputs[place].dtype, array)
            lead = self._leads.get((place, shape, len(content))) or self._lead(place, shape, len(content))
            parts += (lead, content)
            size += len(lead) + len(content)
        parts.append(self._tail)
        return tuple(parts), size

    def _lead(self, place: int, shape: Shape, size: int) -> bytes:
        if len(self._leads) >= KEPT_LEADS:
            self._leads.clear()
        made = self._leads[place, shape, size] = _entry(self._signature.outputs[place], shape, size)
        return made


def _rows(spec: TensorSpec, outcome: Outcome, place: int, first: int, rows: int) -> bytes:
    """The values of some rows. All rows of a batch are encoded together, when the first of them is wanted."""
    packed = outcome.packed.get(place)
    if packed is None:
        packed = outcome.packed[place] = tensor_proto.packed_rows(spec.dtype, outcome.arrays[place])
    return packed[first] if rows == 1 else b"".join(packed[first : first + rows])


def _entry(spec: TensorSpec, shape: Shape, size: int) -> bytes:
    """All bytes of an output that come before its values."""
    head = tensor_proto.header(spec.dtype, shape)
    if size and spec.dtype is not dtypes.STRING:
        head += wire.key(tensor_proto.payload_field(spec.dtype), wire.DELIMITED) + wire.varint(size)
    name = wire.delimited(1, spec.name.encode())
    tensor = wire.key(2, wire.DELIMITED) + wire.varint(len(head) + size) + head
    return wire.key(1, wire.DELIMITED) + wire.varint(len(name) + len(tensor) + size) + name + tensor
