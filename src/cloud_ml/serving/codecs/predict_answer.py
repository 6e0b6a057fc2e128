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

    def __init__(self, signature: Signature, output_indices: Sequence[int], spec: bytes) -> None:
        self._signature = signature
        self._output_indices = tuple(output_indices)
        self._tail = wire.encode_delimited(2, spec)
        outputs = [signature.outputs[place] for place in output_indices]
        self._sized = signature.batched and all(
            each.shape is not None and -1 not in each.shape[1:] for each in outputs
        )
        self._layouts: dict[int, _Layout] = {}

    def parts(self, outcome: Outcome, first: int, rows: int) -> tuple[tuple[bytes, ...], int]:
        """The message in pieces, and its length: the rows of one caller."""
        if not self._sized or not rows:
            return self._encode_unsized(outcome, first, rows)
        layout = self._layouts.get(rows)
        if layout is None:
            layout = self._lay_out(rows)
        size = layout.size
        parts: list[bytes] = []
        for fixed, place, width in layout.outputs:
            if width:
                raw = outcome.raw(place)
                parts += (
                    fixed,
                    raw[first * width : (first + rows) * width]
                    if len(raw) != rows * width
                    else raw,
                )
                continue
            content = _rows(self._signature.outputs[place], outcome, place, first, rows)
            lead = layout.leads.get((place, len(content))) or self._lead(
                layout, place, rows, len(content)
            )
            parts += (lead, content)
            size += len(lead) + len(content)
        parts.append(self._tail)
        return tuple(parts), size

    def _lay_out(self, rows: int) -> "_Layout":
        outputs, size = [], len(self._tail)
        for place in self._output_indices:
            spec = self._signature.outputs[place]
            shape: Shape = (rows, *(spec.shape or ())[1:])
            width = prod(shape[1:]) * spec.dtype.size if spec.dtype.packed_raw else 0
            lead = _entry(spec, shape, rows * width) if width else b""
            outputs.append((lead, place, width))
            size += len(lead) + rows * width
        if len(self._layouts) >= KEPT:
            self._layouts.clear()
        made = self._layouts[rows] = _Layout(outputs, size)
        return made

    def _lead(self, layout: "_Layout", place: int, rows: int, size: int) -> bytes:
        if len(layout.leads) >= KEPT_LEADS:
            layout.leads.clear()
        spec = self._signature.outputs[place]
        made = layout.leads[place, size] = _entry(spec, (rows, *(spec.shape or ())[1:]), size)
        return made

    def _encode_unsized(
        self, outcome: Outcome, first: int, rows: int
    ) -> tuple[tuple[bytes, ...], int]:
        """The same, where only the array tells the shape of an output."""
        parts: list[bytes] = []
        for place in self._output_indices:
            spec, array = self._signature.outputs[place], outcome.arrays[place]
            if self._signature.batched:
                shape = (rows, *array.shape[1:])
                content = _rows(spec, outcome, place, first, rows)
            else:
                shape = array.shape
                content = tensor_proto.pack_values(spec.dtype, array)
            parts += (_entry(spec, shape, len(content)), content)
        parts.append(self._tail)
        return tuple(parts), sum(map(len, parts))


class _Layout:
    """An answer with so many rows: what stands before each output, its place, and the bytes of a
    row.

    Where these depend on the values they are 0, and ``leads`` has the beginning by place and size.
    ``size`` counts the others, and what follows them.
    """

    __slots__ = ("leads", "outputs", "size")

    def __init__(self, outputs: list[tuple[bytes, int, int]], size: int) -> None:
        self.outputs = outputs
        self.size = size
        self.leads: dict[tuple[int, int], bytes] = {}


def _rows(spec: TensorSpec, outcome: Outcome, place: int, first: int, rows: int) -> bytes:
    """The values of some rows. All rows of a batch are encoded together, when the first of them
    is wanted.
    """
    packed = outcome.packed.get(place)
    if packed is None:
        packed = outcome.packed[place] = tensor_proto.packed_rows(spec.dtype, outcome.arrays[place])
    return packed[first] if rows == 1 else b"".join(packed[first : first + rows])


def _entry(spec: TensorSpec, shape: Shape, size: int) -> bytes:
    """All bytes of an output that come before its values."""
    head = tensor_proto.header(spec.dtype, shape)
    if size and spec.dtype is not dtypes.STRING:
        head += wire.key(tensor_proto.payload_field(spec.dtype), wire.DELIMITED) + wire.varint(size)
    name = wire.encode_delimited(1, spec.name.encode())
    tensor = wire.key(2, wire.DELIMITED) + wire.varint(len(head) + size) + head
    return wire.key(1, wire.DELIMITED) + wire.varint(len(name) + len(tensor) + size) + name + tensor
