"""Requests that differ from an earlier one in their numbers and their id only, known by the text
around these.

Why no text can deceive it: what is cut out are lists without a list or a string in them, and the
characters of the id without a quote or a backslash. Each is read as what it stood for when the text
was learnt, or is looked at closer. The text around them is that of a good document: with other
lists and another string in their places it is a good document again, which means the same.
"""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from secrets import randbits
from typing import Any, NamedTuple

import orjson

from cloud_ml.net.http1.calls import HttpCall
from cloud_ml.serving.batching import Request, Values
from cloud_ml.serving.codecs.json_documents import native_code
from cloud_ml.serving.signatures import Shape, Signature

MAX_TEMPLATES = 1024
"""Templates that are kept; when there are more, all are forgotten."""
MAX_BYTES = 1024
"""Bytes of a request beside its numbers, if its template is kept."""
LARGEST = 4096
"""Bytes of a request; the numbers of a larger one are read by another reader."""

_DATA, _ID = b'"data"', b'"id"'
_SPACE = b" \t\r\n"


class SplitDocument(NamedTuple):
    """A request: the text around its lists and its id, the lists, and the id."""

    around: tuple[bytes, ...]
    lists: list[bytes]
    id: str


def split_document(body: bytes) -> SplitDocument | None:
    """The parts of a document; None where they are not told apart for certain.

    Between quotes, a quote has a backslash before it: what looks like a key or a value is one.
    """
    around: list[bytes] = []
    lists: list[bytes] = []
    at = 0
    while (found := body.find(_DATA, at)) >= 0:
        start = body.find(b"[", found)
        end = body.find(b"]", start) + 1
        if start < 0 or not end or body[found + 6 : start].translate(None, _SPACE) != b":":
            return None
        if body.find(b"[", start + 1, end) >= 0 or body.find(b'"', start, end) >= 0:
            return None
        around.append(body[at:start])
        lists.append(body[start:end])
        at = end
    around.append(body[at:])
    found = body.find(_ID)
    return SplitDocument(tuple(around), lists, "") if found < 0 else _without_id(around, lists)


def _without_id(around: list[bytes], lists: list[bytes]) -> SplitDocument | None:
    """The same with the first id cut out of the text around the lists."""
    for place, text in enumerate(around):
        found = text.find(_ID)
        if found < 0:
            continue
        start = text.find(b'"', found + 4) + 1
        end = text.find(b'"', start)
        given = text[start:end]
        if not start or end < 0 or text[found + 4 : start - 1].translate(None, _SPACE) != b":":
            return None
        if b"\\" in given or not given.isascii() or not given.decode().isprintable():
            return None
        around[place : place + 1] = [text[:start], text[end:]]
        return SplitDocument(tuple(around), lists, given.decode())
    return None


@dataclass(frozen=True, slots=True)
class _Input:
    """Which list has the values of an input, how many there are, and of which types; and how
    they become bytes.
    """

    place: int
    count: int
    types: set[type]
    code: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What a request means, without its numbers and its id. ``answers`` makes the form of an
    answer that has an id.
    """

    submit: Callable[[Request, tuple[Shape, ...]], None]
    answers: Callable[[str], Any]
    rows: int
    tails: tuple[Shape, ...]
    timeout_s: float = 0.0


class RequestLayout:
    """A plan, and where the values of its inputs stand."""

    __slots__ = ("_inputs", "_lists", "_plan")

    def __init__(self, plan: Plan, inputs: list[_Input], lists: int) -> None:
        self._plan = plan
        self._inputs = inputs
        self._lists = lists

    def run(self, call: HttpCall, given: SplitDocument) -> bool:
        """Run a request; false where its lists have to be looked at closer."""
        if len(given.lists) != self._lists:
            return False
        tensors: list[Values] = []
        for each in self._inputs:
            try:
                values = orjson.loads(given.lists[each.place])
                if len(values) != each.count or not each.types.issuperset(map(type, values)):
                    return False
                tensors.append(array(each.code, values).tobytes())
            except (ValueError, OverflowError):
                return False
        plan = self._plan
        if plan.timeout_s:
            call.within(plan.timeout_s)
        plan.submit(
            Request(call, plan.answers(given.id), tensors, plan.rows, call.deadline), plan.tails
        )
        return True


class Templates:
    """The templates of all models, by who is asked and the text around the numbers."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, tuple[bytes, ...]], RequestLayout] = {}
        self._generation = -1

    def find(self, generation: int, choice: Any, around: tuple[bytes, ...]) -> RequestLayout | None:
        """What is known of such a request, while the models are those of this generation."""
        if generation != self._generation:
            self._known.clear()
            self._generation = generation
        return self._known.get((choice, around))

    def learn(
        self,
        choice: Any,
        given: SplitDocument,
        signature: Signature,
        shapes: Sequence[Shape],
        plan: Plan,
    ) -> None:
        """Know requests like a good one from now on; ``shapes`` are those of its inputs."""
        if sum(map(len, given.around)) > MAX_BYTES:
            return
        inputs = _inputs(given, signature, shapes)
        if inputs is None:
            return
        if len(self._known) >= MAX_TEMPLATES:
            self._known.clear()
        self._known[choice, given.around] = RequestLayout(plan, inputs, len(given.lists))


def _inputs(
    given: SplitDocument, signature: Signature, shapes: Sequence[Shape]
) -> list[_Input] | None:
    """The inputs in the order of the signature, found by numbers in the places of their lists
    that nobody can guess.
    """
    secret = randbits(48)
    named = len(given.around) == len(given.lists) + 2
    document = orjson.loads(_fill_document(given, secret, named=named))
    places = {each["name"]: each.get("data") for each in document["inputs"]}
    if named and document.get("id") != f"{secret}":
        return None
    made = []
    for spec, shape in zip(signature.inputs, shapes, strict=True):
        code, marker = native_code(spec.dtype), places.get(spec.name)
        if code is None or type(marker) is not int or not 0 <= marker - secret < len(given.lists):
            return None
        made.append(_Input(marker - secret, prod(shape), code[1], code[0]))
    if sorted(each.place for each in made) != list(range(len(given.lists))) or len(places) != len(
        document["inputs"]
    ):
        return None
    return made


def _fill_document(given: SplitDocument, secret: int, *, named: bool) -> bytes:
    """The document with a marker in place of each list, and one as its id."""
    text, lists, has_id = given.around[0], 0, named
    for part in given.around[1:]:
        if has_id and part[:1] == b'"':  # only behind an id: no list is followed by a quote
            text, has_id = text + b"%d" % secret + part, False
        else:
            text, lists = text + b"%d" % (secret + lists) + part, lists + 1
    return text
