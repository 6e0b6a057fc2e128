"""Requests that differ in nothing but their numbers, recognised by their bytes.

A client sends one shape of request again and again: the same names, types, sizes, in the same places; only the values
change. Whoever has read such a request once knows where the values lie in the next one, if all other bytes are
equal. Comparing those costs a tenth of parsing the message.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Generic, TypeVar

from cloud_ml.serving import dtypes
from cloud_ml.serving.codecs import tensor_proto, wire
from cloud_ml.serving.http2.stream import Received
from cloud_ml.serving.signatures import Signature

MOST = 1024
"""Layouts that are kept; when there are more, all are forgotten."""
LONGEST = 4096
"""Bytes outside of values that a layout may have."""

WORTH = 16_384
"""Bytes of a request from which on a view costs less than a copy."""

P = TypeVar("P")
Spans = list[tuple[int, int]]


@dataclass(slots=True)
class Layout(Generic[P]):
    """Where values lie in a request, what stands around them, and what such a request means."""

    literals: tuple[tuple[int, int, bytes], ...]
    spans: tuple[tuple[int, int], ...]
    plan: P

    def fits(self, body: Received) -> bool:
        """Whether a request of the same length has this layout."""
        for start, end, literal in self.literals:  # noqa: SIM110 - all() would cost more than the comparing
            if body[start:end] != literal:
                return False
        return True

    def values(self, body: Received) -> list[Received | memoryview]:
        """What lies in the spans; large ones are not copied."""
        if len(body) < WORTH:
            return [body[start:end] for start, end in self.spans]
        view = memoryview(body)
        return [view[start:end] for start, end in self.spans]


class Layouts(Generic[P]):
    """The layouts that were seen, by the length of the request."""

    def __init__(self) -> None:
        self._by_size: dict[int, list[Layout[P]]] = {}
        self._count = 0

    def find(self, body: Received) -> Layout[P] | None:
        """The layout of this request, if it is known."""
        known = self._by_size.get(len(body))
        if known is None:
            return None
        for place, layout in enumerate(known):
            if layout.fits(body):
                if place:
                    known.insert(0, known.pop(place))
                return layout
        return None

    def learn(self, body: Received, spans: Spans, plan: P) -> None:
        """Know this layout from now on; ``spans`` are in the order in which the plan wants the values."""
        literals, at = [], 0
        for start, end in sorted(spans):
            literals.append((at, start, bytes(body[at:start])))
            at = end
        literals.append((at, len(body), bytes(body[at:])))
        if sum(end - start for start, end, _ in literals) > LONGEST:
            return
        if self._count >= MOST:
            self.forget()
        self._count += 1
        kept = tuple(each for each in literals if each[0] != each[1])
        self._by_size.setdefault(len(body), []).insert(0, Layout(kept, tuple(spans), plan))

    def forget(self) -> None:
        """Know nothing: models changed."""
        self._by_size.clear()
        self._count = 0


def predict_spans(body: Received, at: int, signature: Signature, inputs: Mapping[str, Any]) -> Spans | None:
    """Where the values of a ``PredictRequest`` lie, in the order of the signature; None where they are not raw.

    ``body[at:]`` is the message, ``inputs`` what the library read from it: the tensors were judged already. What the
    library would merge (a name or a tensor twice, groups) is left to it.
    """
    try:
        return _predict_spans(body, at, signature, inputs)
    except wire.Malformed:  # unknown fields may be groups, which the library passes over
        return None


def _predict_spans(body: Received, at: int, signature: Signature, inputs: Mapping[str, Any]) -> Spans | None:
    found: dict[str, tuple[int, int]] = {}
    for number, kind, start, end in wire.fields(body, at, len(body)):
        if number != 2 or kind != wire.DELIMITED:
            continue
        entry = list(wire.fields(body, start, end))
        if [each[:2] for each in entry] != [(1, wire.DELIMITED), (2, wire.DELIMITED)]:
            return None
        name = body[entry[0][2] : entry[0][3]].decode()
        span = _tensor_span(body, *entry[1][2:], inputs.get(name))
        if span is None or name in found:
            return None
        found[name] = span
    if set(found) != {spec.name for spec in signature.inputs}:
        return None
    return [found[spec.name] for spec in signature.inputs]


def _tensor_span(body: Received, at: int, end: int, proto: Any) -> tuple[int, int] | None:
    dtype = dtypes.BY_NUMBER.get(proto.dtype) if proto is not None else None
    if dtype is None or dtype in (dtypes.STRING, dtypes.BOOL):
        return None
    allowed = (4, tensor_proto.payload_field(dtype)) if dtype.packed_raw else (4,)
    found: list[tuple[int, int]] = []
    for number, kind, start, stop in wire.fields(body, at, end):
        if number >= 4:
            if number not in allowed or kind != wire.DELIMITED:
                return None
            found.append((start, stop))
    expected = prod(dim.size for dim in proto.tensor_shape.dim) * dtype.size
    return found[0] if len(found) == 1 and found[0][1] - found[0][0] == expected > 0 else None
