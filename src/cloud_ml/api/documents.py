"""JSON in and out: strict on the way in, compact on the way out."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

import orjson
from starlette.responses import Response

from cloud_ml.errors import InvalidRequest
from cloud_ml.models import codec

MOST_LEVELS = 32
_STRICT = (
    orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)
"""What the standard library does not write, and enumerations that are texts, go to it."""
_NESTED = frozenset({dict, list})
_ENCODE = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def read(body: bytes) -> Any:
    """The JSON document in ``body``.

    What other readers would understand differently or not at all is refused: other encodings than
    UTF-8 and a byte order mark, a name given twice, ``NaN`` and its like, numbers beyond floating
    point, halves of surrogate pairs, deep nesting.

    Raises:
        InvalidRequest: It is none of ours.
    """
    try:
        document = json.loads(
            body.decode("utf-8"),
            object_pairs_hook=_without_repeats,
            parse_constant=_not_a_number,
            parse_float=_finite,
        )
        # The UTF-8 of a text holds no half of a pair: only an escape can.
        if b"\\u" in body:
            _check_texts(document)
        if body.count(b"[") + body.count(b"{") > MOST_LEVELS and _is_deep(document):
            raise _too_deep()
    except RecursionError:
        raise _too_deep() from None
    except InvalidRequest:
        raise
    except (
        ValueError
    ) as error:  # also bytes that are no UTF-8, and numbers with thousands of digits
        raise _invalid_document(str(error)) from None
    return document


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object in ``body``.

    Raises:
        InvalidRequest: It is malformed, or something other than an object.
    """
    document = read(body)
    if not isinstance(document, dict):
        raise _invalid_document("it is not an object")
    return document


def check_no_fields(body: bytes, parameters: str = "") -> None:
    """Refuse what a body says to a call whose parameters stand in the address. An empty object says
    nothing.

    Raises:
        InvalidRequest: There is something in it.
    """
    if body.strip() in (b"", b"{}"):
        return
    raise InvalidRequest(
        "this call takes nothing from a body",
        field="body",
        allowed="no body, or {}",
        hint=f"parameters stand in the address: {parameters}" if parameters else None,
    )


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A wire type, or plain JSON values, as a response."""
    return Response(text(value).encode(), status, headers, media_type="application/json")


def answer_numbers(value: Any) -> Response:
    """The same for a document with many numbers, which are finite. It is made much faster.

    The document is equal to that of ``answer``; a number may have another form, such as ``1e16``
    for ``1e+16`` and ``0.00001`` for ``1e-05``.
    """
    plain = value if isinstance(value, (dict, list)) else codec.encode(value)
    try:
        content = orjson.dumps(plain, option=_STRICT)
    except orjson.JSONEncodeError:  # such as a whole number of more than 64 bits
        content = text(plain).encode()
    return Response(content, media_type="application/json")


def text(value: Any) -> str:
    """A wire type, or plain JSON values, as a document without blanks."""
    return _ENCODE(value if isinstance(value, (dict, list)) else codec.encode(value))


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        seen: set[str] = set()
        name = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise _invalid_document(f"the name {name[:80]!r} is given twice", field=name[:80] or '""')
    return document


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _invalid_document(f"{text[:40]} is beyond the range of numbers")
    return value


def _not_a_number(text: str) -> NoReturn:
    raise _invalid_document(f"{text} is not JSON")


def _is_deep(document: Any) -> bool:
    """Whether something lies within more than 32 lists and objects, looked at level by level."""
    level = [document]
    for _ in range(MOST_LEVELS):
        deeper: list[Any] = []
        for value in level:
            inside = value.values() if type(value) is dict else value
            deeper += [each for each in inside if type(each) in _NESTED]
        if not deeper:
            return False
        level = deeper
    return any(level)


def _check_texts(document: Any) -> None:
    """Refuse halves of surrogate pairs, as a ValueError."""
    waiting = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend(value)
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
        elif isinstance(value, str) and not value.isascii():
            value.encode()


def _too_deep() -> InvalidRequest:
    return _invalid_document(f"it is nested more than {MOST_LEVELS} levels deep")


def _invalid_document(why: str, *, field: str = "body") -> InvalidRequest:
    return InvalidRequest(
        f"the body cannot be read as JSON: {why}", field=field, allowed="a JSON object, in UTF-8"
    )
