"""Dataclasses to and from plain JSON values, by their type hints.

The one definition of a wire type or a stored record is its dataclass. A coder is built once per
type and cached, so that reading a record costs a few microseconds and no schema library is
imported.

Conventions: enums travel as their value, datetimes as RFC 3339 in UTC with microseconds, tuples as
lists. Fields that equal their default are kept, so that a stored document says all it means.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import operator
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from math import isfinite
from typing import Any, TypeVar

from cloud_ml.errors import InvalidRequest
from cloud_ml.models import common

T = TypeVar("T")
Coder = Callable[[Any], Any]
Decoder = Callable[[Any, str], Any]
_FieldDecoder = tuple[Decoder, Collection[type], Mapping[Any, Callable[[], Any]]]
"""What decodes a field, and what ``_as_it_is`` and ``_as_empty`` say of it."""

PREPARE = "prepare"
"""In the metadata of a field: what makes its own type of other ones that are accepted, too. It is
called with the field's path and the value, and may refuse that.
"""
_TIMES = 4096
"""How many moments are kept with their text: a page of a list has a hundred, and most were in
the one before.
"""


def encode(value: Any) -> Any:
    """Return ``value`` (a dataclass instance) as JSON values."""
    kind: Any = type(value)
    return _encoder(kind)(value)


def encode_given(value: Any) -> dict[str, Any]:
    """Return a dataclass instance as JSON values, without fields that are ``None`` or equal their
    default, also within: a server of an earlier version does not know later fields.
    """
    return {
        field.name: _encode_given_item(item)
        for field in dataclasses.fields(value)
        if (item := getattr(value, field.name)) is not None and item != _default_of(field)
    }


def _encode_given_item(item: Any) -> Any:
    if dataclasses.is_dataclass(item):
        return encode_given(item)
    if isinstance(item, (list, tuple)):
        return [_encode_given_item(one) for one in item]
    if isinstance(item, Mapping):
        return {name: _encode_given_item(one) for name, one in item.items()}
    return encode(item)


def _default_of(field: dataclasses.Field[Any]) -> Any:
    made = field.default_factory
    return field.default if made is dataclasses.MISSING else made()


def decode(kind: type[T], document: Any, *, path: str = "", ignore_unknown: bool = False) -> T:
    """Read a ``kind`` out of JSON values.

    Args:
        kind: A dataclass type.
        document: What ``json.loads`` returned.
        path: Where the document sits in the request; prefixes the field of an error.
        ignore_unknown: Accept and drop fields that ``kind`` lacks (stored documents of a newer
            version, old clients) instead of refusing them.

    Raises:
        InvalidRequest: A field is missing, unknown or of the wrong type; names field, value and
            what is allowed.
    """
    untyped: Any = kind
    value: T = _dataclass_decoder(untyped, ignore_unknown)(document, path)
    return value


@functools.lru_cache(_TIMES)
def format_time(moment: datetime) -> str:
    """RFC 3339 in UTC, always with six digits, so that text order is time order."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z"


@functools.lru_cache(_TIMES)
def parse_time(text: str) -> datetime:
    """The reverse of ``format_time``; accepts any RFC 3339 offset.

    Raises:
        ValueError: ``text`` is not a time, or has no offset.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is UTC:
        return moment
    if moment.tzinfo is None:
        raise ValueError("the time has no offset")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("the time is before the first year or after the last") from None


_PLAIN = frozenset({str, int, float, bool, type(None)})
"""What stands in JSON as it is."""
_CONTAINERS: Mapping[Any, Callable[[], Any]] = {tuple: list, list: list, dict: dict}
"""What an empty one becomes."""


@functools.cache
def _encoder(kind: Any) -> Coder:
    if dataclasses.is_dataclass(kind):
        return _dataclass_encoder([field.name for field in dataclasses.fields(kind)])
    if issubclass(kind, enum.Enum):
        return operator.attrgetter("_value_")  # ``value`` is a call of Python
    if issubclass(kind, datetime):
        return format_time
    if issubclass(kind, Mapping):
        return _encode_mapping
    if issubclass(kind, (list, tuple)):
        return _encode_sequence
    return lambda value: value


def _dataclass_encoder(names: Sequence[str]) -> Coder:
    def encode_fields(value: Any) -> Any:
        document = {}
        for name in names:  # a comprehension would be one more call for each object
            item = getattr(value, name)
            kind: Any = type(item)
            if kind in _PLAIN:
                document[name] = item
            elif kind in _CONTAINERS and not item:  # most of them are empty
                document[name] = _CONTAINERS[kind]()
            else:
                document[name] = _encoder(kind)(item)
        return document

    return encode_fields


def _encode_mapping(value: Any) -> Any:
    document = {}
    for key, item in value.items():
        kind: Any = type(item)
        document[key] = item if kind in _PLAIN else _encoder(kind)(item)
    return document


def _encode_sequence(value: Any) -> Any:
    items = []
    for item in value:
        kind: Any = type(item)
        items.append(item if kind in _PLAIN else _encoder(kind)(item))
    return items


@functools.cache
def _dataclass_decoder(kind: Any, ignore_unknown: bool) -> Decoder:
    fields = _field_decoders(kind, ignore_unknown)
    required = _required_fields(kind)
    aliases: Mapping[str, str] = getattr(kind, "field_aliases", {})

    def read(document: Any, path: str) -> Any:
        if type(document) is not dict and not isinstance(document, Mapping):
            raise _no_object(path, document, fields)
        values = {}
        for name, item in document.items():
            entry = fields.get(name)
            if entry is not None:
                decode_item, as_it_is, as_empty = entry
                kind_given = type(item)
                if kind_given in as_it_is:
                    values[name] = item
                elif kind_given in as_empty and not item:  # most of them are empty
                    values[name] = as_empty[kind_given]()
                else:
                    values[name] = decode_item(item, f"{path}.{name}" if path else name)
            elif not ignore_unknown:
                raise _unknown(path, name, item, list(fields), aliases.get(str(name)))
        for name in required:
            if name not in values:
                raise _missing(path, name)
        return kind(**values)

    return read


def _field_decoders(kind: Any, ignore_unknown: bool) -> dict[str, _FieldDecoder]:
    hints = typing.get_type_hints(kind)
    return {
        field.name: (
            _prepared(field, _decoder(_without_none(hints[field.name]), ignore_unknown)),
            _as_it_is(hints[field.name]),
            _as_empty(hints[field.name]),
        )
        for field in dataclasses.fields(kind)
        if field.init
    }


def _prepared(field: dataclasses.Field[Any], decode_item: Decoder) -> Decoder:
    prepare = field.metadata.get(PREPARE)
    if prepare is None:
        return decode_item
    return lambda value, path: decode_item(prepare(path, value), path)


def _required_fields(kind: Any) -> list[str]:
    """The names of fields that have no default."""
    return [
        field.name
        for field in dataclasses.fields(kind)
        if field.init
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    ]


def _decoder(hint: Any, ignore_unknown: bool) -> Decoder:
    origin = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _union_decoder(arguments, ignore_unknown)
    if origin in (tuple, list):
        item_decoder = _decoder(arguments[0], ignore_unknown)
        return _sequence_decoder(origin, item_decoder, _as_it_is(arguments[0]))
    if (
        origin is dict
        or origin is Mapping
        or (isinstance(origin, type) and issubclass(origin, Mapping))
    ):
        return _mapping_decoder(arguments[1], _decoder(arguments[1], ignore_unknown))
    if dataclasses.is_dataclass(hint):
        return _dataclass_decoder(typing.cast("Any", hint), ignore_unknown)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _enum_decoder(hint)
    if hint is datetime:
        return _read_time
    if hint is Any or hint is object:
        return lambda value, path: value
    return _SCALARS[hint]


def _union_decoder(arguments: tuple[Any, ...], ignore_unknown: bool) -> Decoder:
    optional = type(None) in arguments
    kinds = [argument for argument in arguments if argument is not type(None)]
    choices = [_decoder(kind, ignore_unknown) for kind in kinds]
    # A number may be given as text, too: what is neither should have been a number. Otherwise the
    # last choice tells, which may name what is inside a list or an object.
    decisive = next((at for at, kind in enumerate(kinds) if kind in (int, float)), len(kinds) - 1)

    def read(value: Any, path: str) -> Any:
        if value is None and optional:
            return None
        for choice in choices:
            try:
                return choice(value, path)
            except InvalidRequest:
                continue
        return choices[decisive](value, path)  # which raises

    return read


def _sequence_decoder(origin: Any, item_decoder: Decoder, as_it_is: Collection[type]) -> Decoder:
    def read(value: Any, path: str) -> Any:
        if not isinstance(value, (list, tuple)):
            raise _wrong(path, value, "a list")
        items = []
        for i, item in enumerate(value):
            items.append(item if type(item) in as_it_is else item_decoder(item, f"{path}[{i}]"))
        return items if origin is list else origin(items)

    return read


def _as_it_is(hint: Any) -> Collection[type]:
    """The types of JSON whose values a decoder of ``hint`` would give back as they are: they need
    not be asked for. A number is no such value where a fraction may stand: it may be infinite.
    """
    if hint in (str, int, bool):
        return frozenset({hint})
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return frozenset()
    nothing = type(None)
    kinds = [kind for kind in typing.get_args(hint) if kind is not nothing]
    # Choices are tried in their order: beyond the first, an earlier one may take the value.
    found = {*_as_it_is(kinds[0])}
    if nothing in typing.get_args(hint):
        found.add(nothing)
    return frozenset(found)


def _first_choice(hint: Any) -> Any:
    """What a decoder of ``hint`` tries first, which is what it takes where it can."""
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return hint
    return next(kind for kind in typing.get_args(hint) if kind is not type(None))


def _without_none(hint: Any) -> Any:
    """The one type of a hint such as ``int | None``, for a caller that takes ``None`` as it is."""
    kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
    optional = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return kinds[0] if optional and len(kinds) == 1 else hint


def _as_empty(hint: Any) -> Mapping[Any, Callable[[], Any]]:
    """The types of JSON whose empty values a decoder of ``hint`` would make something empty of, and
    what makes that.
    """
    origin = typing.get_origin(_without_none(hint))
    if origin in (tuple, list):
        return {list: origin}
    is_mapping = isinstance(origin, type) and issubclass(origin, Mapping)
    return {dict: dict} if is_mapping else {}


def _mapping_decoder(hint: Any, item_decoder: Decoder) -> Decoder:
    as_it_is = _as_it_is(hint)
    # A list of runs has a thousand metrics, nearly all of them finite numbers.
    fraction = float if _first_choice(hint) is float else None

    def read(value: Any, path: str) -> Any:
        if type(value) is not dict and not isinstance(value, Mapping):
            raise _wrong(path, value, "an object of names and values")
        values = {}
        for key, item in value.items():
            kind = type(item)
            if kind in as_it_is or (kind is fraction and isfinite(item)):
                values[str(key)] = item
            else:
                values[str(key)] = item_decoder(item, f"{path}.{key}")
        return values

    return read


def _enum_decoder(kind: type[enum.Enum]) -> Decoder:
    members = {member.value: member for member in kind}

    def read(value: Any, path: str) -> Any:
        try:
            return members[value]
        except (KeyError, TypeError):
            raise _wrong(path, value, "one of " + ", ".join(map(str, members))) from None

    return read


def _read_time(value: Any, path: str) -> datetime:
    if isinstance(value, str):
        try:
            return parse_time(value)
        except ValueError:
            pass
    raise _wrong(path, value, "a time such as 2026-01-31T12:00:00Z")


def _read_str(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise _wrong(
            path, value, "a string" + (", in quotes" if type(value) in (int, float) else "")
        )
    return value


def _read_bool(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise _wrong(path, value, "true or false")
    return value


def _read_int(value: Any, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(path, value, "a whole number")
    return value


def _read_float(value: Any, path: str) -> float:
    if (
        not isinstance(value, bool)
        and isinstance(value, (int, float))
        and abs(value) <= sys.float_info.max
    ):
        return float(value)
    raise _wrong(path, value, "a number")


_MOST_SHOWN = 6
_SCALARS: dict[Any, Decoder] = {
    str: _read_str,
    bool: _read_bool,
    int: _read_int,
    float: _read_float,
}


def _wrong(path: str, value: Any, allowed: str) -> InvalidRequest:
    return InvalidRequest(
        f"{path} is {common.format_value(value, 80)}; allowed is {allowed}",
        field=path,
        value=value,
        allowed=allowed,
    )


def _no_object(path: str, value: Any, fields: Iterable[str]) -> InvalidRequest:
    known = ", ".join(list(fields)[:_MOST_SHOWN])
    return _wrong(path or "body", value, f"an object of {known}" if path else "an object")


def _missing(path: str, name: str) -> InvalidRequest:
    where = f"{path}.{name}" if path else name
    return InvalidRequest(f"{where} is missing", field=where, allowed="a value is required")


def _unknown(
    path: str, name: str, value: Any, known: list[str], alias: str | None
) -> InvalidRequest:
    where = f"{path}.{name}" if path else name or '""'
    near = [alias] if alias else get_close_matches(name, known, n=3)
    return InvalidRequest(
        f"{where} is not a known field" + (f"; did you mean {' or '.join(near)}?" if near else ""),
        field=where,
        value=value,
        allowed="one of " + ", ".join(near or known),
    )
