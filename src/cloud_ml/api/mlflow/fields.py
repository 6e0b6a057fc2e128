"""Fields of requests, as MLflow's clients send them: JSON of protocol buffers, or a query.

Whole numbers may be texts, NaN and infinities are texts, and names are written in two ways.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request

from cloud_ml.api import documents
from cloud_ml.models import common

_MOST_INTEGER = 2**63 - 1
_LONGEST_TEXT = 100_000
_DOUBLES = {"NaN", "Infinity", "-Infinity"}


class RequestFields:
    """The fields of one request."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    @classmethod
    def read(cls, request: Request, body: bytes) -> RequestFields:
        """Those of the body, else those of the query.

        Raises:
            InvalidRequest: The body is no JSON object.
        """
        if request.method != "GET" and body:
            # The path last: a field of the body must not name another resource than the address
            # does.
            return cls({**documents.read_object(body), **request.path_params})
        found: dict[str, Any] = {}
        for name, value in request.query_params.multi_items():
            if name in found:
                before = found[name]
                found[name] = [*before, value] if isinstance(before, list) else [before, value]
            else:
                found[name] = value
        return cls({**found, **request.path_params})

    def any(self, *names: str) -> Any:
        """A field under the first of its names that is there; ``None`` for none and for null."""
        for name in names:
            if (value := self._values.get(name)) is not None:
                return value
            # JSON of protocol buffers is read in both ways: as the field is called, and in
            # lowerCamelCase.
            if (value := self._values.get(_camel(name))) is not None:
                return value
        return None

    def text(self, *names: str, default: str | None = None) -> str:
        """A text; required without a default.

        Raises:
            InvalidRequest: It is missing, or none.
        """
        value = self.any(*names)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or (default is None and not value):
            raise common.refuse(names[0], _shown(value), "a text")
        if "\x00" in value or len(value) > _LONGEST_TEXT:
            allowed = f"a text without NUL, of at most {_LONGEST_TEXT} characters"
            raise common.refuse(names[0], _shown(value), allowed)
        return value

    def integer(self, name: str, default: int | None = None) -> int:
        """A whole number of 64 bits; required without a default.

        Raises:
            InvalidRequest: It is missing, or none.
        """
        value = self.any(name)
        if value is None and default is not None:
            return default
        return whole(name, value)

    def items(self, *names: str, most: int) -> Sequence[Any]:
        """A list; an absent one is empty.

        Raises:
            InvalidRequest: It is none, or too long.
        """
        value = self.any(*names)
        if value is None:
            return ()
        if isinstance(value, str):  # one value of a query
            value = [value]
        if not isinstance(value, list):
            raise common.refuse(names[0], _shown(value), "a list")
        if len(value) > most:
            raise common.refuse(names[0], f"{len(value)} entries", f"at most {most} entries")
        return value

    def texts(self, *names: str, most: int) -> list[str]:
        """A list of texts.

        Raises:
            InvalidRequest: It is none, or too long.
        """
        found = self.items(*names, most=most)
        for one in found:
            if not isinstance(one, str):
                raise common.refuse(names[0], _shown(one), "texts")
        return list(found)

    def objects(self, *names: str, most: int) -> list[RequestFields]:
        """A list of objects.

        Raises:
            InvalidRequest: It is none, or too long.
        """
        return [RequestFields(one) for one in self.documents(*names, most=most)]

    def documents(self, *names: str, most: int) -> Sequence[dict[str, Any]]:
        """The same as plain JSON.

        Raises:
            InvalidRequest: It is none, or too long.
        """
        found = self.items(*names, most=most)
        for one in found:
            if not isinstance(one, dict):
                raise common.refuse(names[0], _shown(one), "objects")
        return found

    def pairs(self, name: str, *, most: int) -> dict[str, Any]:
        """A list of objects with ``key`` and ``value``. The same pair may be there twice.

        Raises:
            InvalidRequest: It is none, or a key has two values.
        """
        found: dict[str, Any] = {}
        for one in self.objects(name, most=most):
            key, value = one.text("key"), one.any("value")
            value = "" if value is None else value
            if found.get(key, value) != value:
                raise common.refuse(f"{name}.{key[:80]}", "two values", "one value for each key")
            found[key] = value
        return found

    def number(self, name: str) -> float:
        """A double, as JSON of protocol buffers writes it.

        Raises:
            InvalidRequest: It is none.
        """
        value = self.any(name)
        if isinstance(value, str) and (value in _DOUBLES or _is_number(value)):
            return float(value)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise common.refuse(name, _shown(value), 'a number, "NaN", "Infinity" or "-Infinity"')
        try:
            return float(value)
        except OverflowError:
            raise common.refuse(name, "a longer number", "a number of 64 bits") from None

    def plain(self) -> str:
        """All fields, as text."""
        return json.dumps(self._values, sort_keys=True)

    def values(self) -> dict[str, Any]:
        """All fields."""
        return dict(self._values)


def whole(name: str, value: Any) -> int:
    """A whole number of 64 bits, which may be a text.

    Raises:
        InvalidRequest: It is none.
    """
    if isinstance(value, str) and len(value) < 25 and value.lstrip("-").isdecimal():
        value = int(value) if value.isascii() and value.count("-") < 2 else None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _MOST_INTEGER:
        raise common.refuse(name, _shown(value), "a whole number of 64 bits")
    return value


def _is_number(text: str) -> bool:
    """Whether a text is a number of 64 bits. One beyond them is no infinity that somebody meant."""
    try:
        return len(text) < 400 and text.isascii() and math.isfinite(float(text))
    except ValueError:
        return False


@functools.lru_cache
def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part.capitalize() for part in others)


def _shown(value: Any) -> Any:
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return value[:80]
    return value if isinstance(value, (int, float)) else type(value).__name__
