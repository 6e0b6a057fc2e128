"""A ``PredictRequest`` read part by part, where each part but the values was in an earlier request.

The parts are the top-level fields of the message. An input is known by its size and by all of its
bytes that are not values. So neither the order of the inputs matters, nor the sizes of the others.
All other fields together name the model, the signature and the outputs: the library reads them
once.

Why no bytes can deceive it: the bytes before the values are known, so they bring any parser to the
same state. The length of the values is among them, or a decoder checks that the values are the
fields that they have to be. So a parser is in the same state behind the values, and the bytes from
there on are known again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from cloud_ml.net.http2.stream import Received
from cloud_ml.serving.codecs import tensor_values, wire
from cloud_ml.serving.codecs.layouts import WORTH, Values
from cloud_ml.serving.codecs.value_lists import Decoder
from cloud_ml.serving.dtypes import DType
from cloud_ml.serving.runtimes.base import Array
from cloud_ml.serving.signatures import Shape

MAX_INPUTS = 1024
"""Inputs that are kept; when there are more, all are forgotten."""
MAX_FORMS = 8
"""Places that the values may have in inputs of one size: each costs a look-up."""
MAX_BYTES = 1024
"""Bytes of an input that are no values, if it is kept."""

_INPUT = wire.key(2, wire.DELIMITED)[0]


@dataclass(eq=False, frozen=True, slots=True)
class TensorType:
    """An element type and a shape. There is one object for each, so they are compared by
    identity.
    """

    dtype: DType
    shape: Shape


@dataclass(eq=False, frozen=True, slots=True)
class _Input:
    """An input without its values, and how to read these."""

    name: str
    type: TensorType
    decode: Decoder | None


class _Form(NamedTuple):
    """How many bytes are before and after the values, and the inputs that have just these bytes
    there.
    """

    before: int
    after: int
    inputs: dict[bytes, _Input]


class InputTensor(NamedTuple):
    """An input of a request: its type, its values, where they are, and how they were read."""

    type: TensorType
    values: Values
    span: tuple[int, int]
    decode: Decoder | None


class Parts(NamedTuple):
    """A request: the fields that are no inputs, as bytes, and the inputs by name."""

    others: bytes
    inputs: dict[str, InputTensor]


class PredictParts:
    """The inputs of earlier requests, by their size."""

    def __init__(self) -> None:
        self._forms: dict[int, list[_Form]] = {}
        self._types: dict[tuple[DType, Shape], TensorType] = {}
        self._count = 0

    def read(self, body: Received) -> Parts | None:
        """The message in ``body[5:]``, if all its inputs are known and no name is there twice."""
        data = body if len(body) < WORTH else memoryview(body)
        at, end = 5, len(data)
        others = b""
        inputs: dict[str, InputTensor] = {}
        try:
            while at < end:
                tag, size, start = data[at], data[at + 1], at + 2
                if size >= 0x80:
                    size, start = wire.read_varint(data, at + 1, end)
                stop = start + size
                if tag == _INPUT:
                    found = self._find(data, start, stop)
                    if found is None or found[0] in inputs:
                        return None
                    inputs[found[0]] = found[1]
                elif tag & 7 == wire.DELIMITED and tag < 0x80:
                    others += data[at:stop]
                else:
                    return None
                at = stop
        except (IndexError, wire.Malformed):
            return None
        return Parts(others, inputs) if at == end else None

    def _find(
        self, data: Received | memoryview, start: int, stop: int
    ) -> tuple[str, InputTensor] | None:
        """The input ``data[start:stop]`` and its name."""
        for before, after, inputs in self._forms.get(stop - start, ()):
            first, last = start + before, stop - after
            around = bytes(data[start:first])
            found = inputs.get(around + data[last:stop] if after else around)
            if found is not None:
                break
        else:
            return None
        values: Values | None = data[first:last]
        if found.decode is not None:
            values = found.decode(bytes(data[first:last]))
        return (
            (found.name, InputTensor(found.type, values, (first, last), found.decode))
            if values is not None
            else None
        )

    def learn(self, body: Received, protos: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        """Know the inputs of a request from now on, which the library read, and what they mean:
        both by name.
        """
        try:
            given = [
                each[2:]
                for each in wire.fields(body, 5, len(body))
                if each[:2] == (2, wire.DELIMITED)
            ]
            if len(given) == len(protos):
                for start, end in given:
                    self._learn(body, start, end, protos, arrays)
        except wire.Malformed:  # unknown fields may be groups, which the library passes over
            return

    def _learn(
        self,
        data: Received,
        start: int,
        end: int,
        protos: Mapping[str, Any],
        arrays: Mapping[str, Array],
    ) -> None:
        fields = sorted(wire.fields(data, start, end))
        if [each[:2] for each in fields] != [(1, wire.DELIMITED), (2, wire.DELIMITED)]:
            return
        if self._find(data, start, end) is not None:
            return
        name = bytes(data[slice(*fields[0][2:])]).decode()
        values = tensor_values.locate(data, *fields[1][2:], protos[name], arrays[name])
        if values is None or end - start - (values.end - values.start) > MAX_BYTES:
            return
        if self._count >= MAX_INPUTS:
            self.forget()
        form = self._form(end - start, values.start - start, end - values.end)
        around = bytes(data[start : values.start]) + bytes(data[values.end : end])
        self._count += around not in form.inputs
        key = values.dtype, values.shape
        form.inputs[around] = _Input(
            name, self._types.setdefault(key, TensorType(*key)), values.decode
        )

    def _form(self, size: int, before: int, after: int) -> _Form:
        """Where to keep such an input: a new form takes the place of the oldest."""
        forms = self._forms.setdefault(size, [])
        for form in forms:
            if form[:2] == (before, after):
                return form
        if len(forms) >= MAX_FORMS:
            self._count -= len(forms.pop(0).inputs)
        forms.append(_Form(before, after, {}))
        return forms[-1]

    def forget(self) -> None:
        """Know nothing."""
        self._forms.clear()
        self._types.clear()
        self._count = 0
