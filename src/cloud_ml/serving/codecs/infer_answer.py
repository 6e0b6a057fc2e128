"""``ModelInferResponse``, laid out once for each size and filled in for each caller."""

from collections.abc import Sequence
from math import prod
from typing import Any

from cloud_ml.serving import dtypes
from cloud_ml.serving.batching import Outcome
from cloud_ml.serving.codecs import wire
from cloud_ml.serving.codecs.infer_request import FIELDS, packed_strings
from cloud_ml.serving.errors import BadRequest
from cloud_ml.serving.protos import message
from cloud_ml.serving.runtimes.base import Array
from cloud_ml.serving.signatures import Shape, Signature, TensorSpec

KEPT = 64
"""Sizes for which the layout is remembered."""
_ID, _OUTPUTS, _CONTENTS, _RAW = 3, 5, 5, 6


class InferAnswer:
    """Writes answers to calls of one signature of one version that want the same outputs.

    ``raw`` as the request was: values in ``raw_output_contents`` or in typed lists, which not every
    type has.
    """

    def __init__(
        self,
        signature: Signature,
        output_indices: Sequence[int],
        name: str,
        version: int,
        *,
        raw: bool,
    ) -> None:
        outputs = [signature.outputs[place] for place in output_indices]
        for spec in outputs:
            if spec.dtype.oip is None:
                raise BadRequest(
                    f"output {spec.name!r} is {spec.dtype}, which this protocol does not "
                    f"have: {signature}"
                )
        self._signature = signature
        self._output_indices = tuple(output_indices)
        self._lead = wire.encode_delimited(1, name.encode()) + wire.encode_delimited(
            2, str(version).encode()
        )
        self._raw = raw or any(spec.dtype.oip not in FIELDS for spec in outputs)
        self._quick = (
            self._raw
            and signature.batched
            and all(
                each.dtype.size and each.shape is not None and -1 not in each.shape[1:]
                for each in outputs
            )
        )
        self._made: dict[int, tuple[list[tuple[bytes, int, int]], int]] = {}

    def parts(
        self, outcome: Outcome, first: int, rows: int, id_: bytes
    ) -> tuple[tuple[bytes, ...], int]:
        """The message in pieces, and its length: the rows of one caller."""
        id_field = wire.encode_delimited(_ID, id_) if id_ else b""
        if not self._quick or not rows:
            whole = self._lead + id_field + self._whole(outcome, first, rows)
            return (whole,), len(whole)
        made = self._made.get(rows)
        if made is None:
            made = self._lay_out(rows)
        layout, size = made
        parts: list[bytes] = [id_field] if id_field else []
        for lead, place, width in layout:
            raw = outcome.raw(place)
            parts += (
                lead,
                raw[first * width : (first + rows) * width] if len(raw) != rows * width else raw,
            )
        return tuple(parts), size + len(id_field)

    def _lay_out(self, rows: int) -> tuple[list[tuple[bytes, int, int]], int]:
        specs = [(place, self._signature.outputs[place]) for place in self._output_indices]
        head = self._lead + b"".join(
            _encode_output(spec, (rows, *(spec.shape or ())[1:])) for _, spec in specs
        )
        layout, size = [], 0
        for place, spec in specs:
            width = prod((spec.shape or ())[1:]) * spec.dtype.size
            lead = head + wire.key(_RAW, wire.DELIMITED) + wire.varint(rows * width)
            layout.append((lead, place, width))
            size += len(lead) + rows * width
            head = b""
        if len(self._made) >= KEPT:
            self._made.clear()
        self._made[rows] = layout, size
        return layout, size

    def _whole(self, outcome: Outcome, first: int, rows: int) -> bytes:
        described, raws = [], []
        for place in self._output_indices:
            spec, array = self._signature.outputs[place], outcome.arrays[place]
            if self._signature.batched:
                array = array[first : first + rows]
            contents = (
                b""
                if self._raw
                else wire.encode_delimited(_CONTENTS, _encode_contents(spec, array))
            )
            described.append(_encode_output(spec, array.shape, contents))
            if self._raw:
                raw = packed_strings(array) if spec.dtype is dtypes.STRING else array.tobytes()
                raws.append(wire.encode_delimited(_RAW, raw))
        return b"".join(described + raws)


def _encode_output(spec: TensorSpec, shape: Shape, contents: bytes = b"") -> bytes:
    sizes = b"".join(wire.varint(size) for size in shape)
    fields = wire.encode_delimited(1, spec.name.encode()) + wire.encode_delimited(
        2, (spec.dtype.oip or "").encode()
    )
    return wire.encode_delimited(_OUTPUTS, fields + wire.encode_delimited(3, sizes) + contents)


def _encode_contents(spec: TensorSpec, array: Array) -> bytes:
    contents: Any = message("inference.InferTensorContents")()
    values: list[Any] = array.ravel().tolist()
    if spec.dtype is dtypes.STRING:
        values = [each if isinstance(each, bytes) else str(each).encode() for each in values]
    getattr(contents, FIELDS[spec.dtype.oip or ""]).extend(values)
    return bytes(contents.SerializeToString())
