"""Requests that differ in nothing but their numbers, recognised by their bytes.

A client sends one shape of request again and again: the same names, types, sizes, in the same
places; only the values change. Whoever has read such a request once knows where the values lie in
the next one, if all other bytes are equal. Comparing those costs a tenth of parsing the message.

Why no bytes can deceive it: a layout applies to one length of a message and to all bytes outside of
the values. The tags and lengths in front of the values are among these, so every parser finds the
values at the same place, and its state behind them is the same. Whoever adds a layout leaves what
the library would merge (a tensor twice) to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from cloud_ml.net.http2.stream import Received
from cloud_ml.serving.codecs.value_lists import Decoder
from cloud_ml.serving.runtimes.base import Array

MOST = 1024
"""Layouts that are kept; when there are more, all are forgotten."""
LONGEST = 4096
"""Bytes outside of values that a layout may have."""
ALIKE = 16
"""Layouts of requests of one length: each costs a comparison. A new one takes the place of the
one that was not needed for longest.
"""

WORTH = 16_384
"""Bytes of a request from which on a view costs less than a copy."""

P = TypeVar("P")
Spans = list[tuple[int, int]]
Values = bytes | bytearray | memoryview | Array


@dataclass(slots=True)
class Layout(Generic[P]):
    """Where values lie in a request, what stands around them, how they are read, and what such a
    request means.

    Without ``decoders`` the bytes are the values.
    """

    literals: tuple[tuple[int, int, bytes], ...]
    spans: tuple[tuple[int, int], ...]
    plan: P
    decoders: tuple[Decoder | None, ...] = ()

    def fits(self, body: Received) -> bool:
        """Whether a request of the same length has this layout."""
        for start, end, literal in self.literals:  # noqa: SIM110 - all() would cost more than the comparing
            if body[start:end] != literal:
                return False
        return True

    def values(self, body: Received) -> list[Values] | None:
        """What lies in the spans; large ones are not copied. None where a decoder refuses the
        bytes.
        """
        data = body if len(body) < WORTH else memoryview(body)
        if not self.decoders:
            return [data[start:end] for start, end in self.spans]
        made: list[Values] = []
        for (start, end), decode in zip(self.spans, self.decoders, strict=True):
            values: Values | None = (
                data[start:end] if decode is None else decode(bytes(data[start:end]))
            )
            if values is None:
                return None
            made.append(values)
        return made


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

    def has_room(self, size: int) -> bool:
        """Whether a layout of this length can be learnt without another being forgotten."""
        return len(self._by_size.get(size, ())) < ALIKE

    def learn(
        self, body: Received, spans: Spans, plan: P, decoders: Sequence[Decoder | None] = ()
    ) -> None:
        """Know this layout from now on; ``spans`` are in the order in which the plan wants the
        values.
        """
        literals, at = [], 0
        for start, end in sorted(spans):
            literals.append((at, start, bytes(body[at:start])))
            at = end
        literals.append((at, len(body), bytes(body[at:])))
        if sum(end - start for start, end, _ in literals) > LONGEST:
            return
        if self._count >= MOST:
            self.forget()
        kept = tuple(each for each in literals if each[0] != each[1])
        alike = self._by_size.setdefault(len(body), [])
        alike.insert(0, Layout(kept, tuple(spans), plan, tuple(decoders) if any(decoders) else ()))
        self._count += 1
        if len(alike) > ALIKE:
            alike.pop()
            self._count -= 1

    def forget(self) -> None:
        """Know nothing: models changed."""
        self._by_size.clear()
        self._count = 0
