"""The long lists of statuses, whose items are stored one by one: see ``ItemList``. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from cloud_ml.domain.records import ItemList, Kind, find_changed_places
from cloud_ml.models import codec

T = TypeVar("T")

ITEMS = -1
"""The number of the list of items. The list of an item has the position of the item."""


class ItemRow(NamedTuple):
    """An item, or an element of the list of one, as it is stored."""

    list: int
    position: int
    document: str


@dataclass(frozen=True)
class ItemChanges:
    """What a commit writes of a list: rows that are new, and rows that replace older ones."""

    new: Sequence[ItemRow]
    changed: Sequence[ItemRow]


def get_items(kind: Kind[Any, T], status: T) -> Sequence[Any]:
    """The items of a status; none of a kind without a list."""
    found: Sequence[Any] = () if kind.items is None else getattr(status, kind.items.field)
    return found


def without_items(kind: Kind[Any, T], status: T) -> T:
    """The status with an empty list."""
    return status if kind.items is None else _with_items(status, kind.items, ())


def check_growth(kind: Kind[Any, T], before: T, after: T) -> None:
    """Refuse a status that has lost items, or elements of one: a mistake in the program.

    Raises:
        ValueError: It has.
    """
    if kind.items is not None:
        list(_compare_items(kind.items, get_items(kind, before), get_items(kind, after)))


def find_changes(kind: Kind[Any, T], before: Sequence[Any], after: T) -> tuple[T, ItemChanges]:
    """The status as it will be read, and what of its list is to be written.

    Args:
        kind: Whose status it is.
        before: The items as they are stored.
        after: The status to be stored. Items that are the very objects of ``before`` cost nothing.

    Raises:
        InvalidRequest: An item holds something that its type does not allow.
        ValueError: It holds a number that JSON lacks, or the list has lost something.
    """
    described = kind.items
    if described is None:
        return after, ItemChanges((), ())
    items = list(get_items(kind, after))
    new: list[ItemRow] = []
    changed: list[ItemRow] = []
    for position, old, item in _compare_items(described, before, items):
        outer, inner = _split(described, item)
        text, outer = _store_value(described.item_type, outer)
        row = ItemRow(ITEMS, position, text)
        if old is None:
            new.append(row)
        elif outer != _split(described, old)[0]:
            changed.append(row)
        elements = [] if old is None else list(getattr(old, described.elements))
        for number in range(len(elements), len(inner)):
            text, element = _store_value(described.element_type, inner[number])
            new.append(ItemRow(position, number, text))
            elements.append(element)
        items[position] = replace(outer, **{described.elements: tuple(elements)})
    return _with_items(after, described, tuple(items)), ItemChanges(new, changed)


def join_items(kind: Kind[Any, T], status: T, known: Sequence[Any], rows: Iterable[ItemRow]) -> T:
    """The status with its list.

    Args:
        kind: Whose status it is.
        status: What is stored of it beside the list.
        known: Items as they were at an earlier revision.
        rows: What was written since then, in any order.

    Raises:
        InvalidRequest: A row is not of its type.
        ValueError: A row is no JSON, or there is one without those before it.
    """
    described = kind.items
    if described is None:
        return status
    items, inner = list(known), dict[int, list[Any]]()
    # The list of items has the number -1, so items sort before their elements.
    for row in sorted(rows, key=lambda row: (row.list, row.position)):
        if row.list == ITEMS:
            item = _read_value(described.item_type, row.document)
            if row.position < len(items):
                kept = getattr(items[row.position], described.elements)
                items[row.position] = replace(item, **{described.elements: kept})
                continue
            _check_next(row, len(items))
            items.append(item)
            continue
        if row.list >= len(items):
            raise ValueError(f"there is no item {row.list}, of which there are elements")
        elements = inner.get(row.list)
        if elements is None:
            elements = inner[row.list] = list(getattr(items[row.list], described.elements))
        _check_next(row, len(elements))
        elements.append(_read_value(described.element_type, row.document))
    for position, elements in inner.items():
        items[position] = replace(items[position], **{described.elements: tuple(elements)})
    return _with_items(status, described, tuple(items))


def _compare_items(
    described: ItemList, before: Sequence[Any], after: Sequence[Any]
) -> Iterator[tuple[int, Any, Any]]:
    """The places of items that are other objects than before, with both; ``None`` for no item."""
    if len(after) < len(before):
        raise ValueError(f"{described.field} had {len(before)} items and would have {len(after)}")
    for position in find_changed_places(before, after):
        old, item = before[position] if position < len(before) else None, after[position]
        if old is not None:
            known, inner = (getattr(each, described.elements) for each in (old, item))
            if inner is not known and inner[: len(known)] != known:
                raise ValueError(f"{described.elements} of item {position} has lost elements")
        yield position, old, item


def _split(described: ItemList, item: Any) -> tuple[Any, Sequence[Any]]:
    """An item without its own list, and that list."""
    inner: Sequence[Any] = getattr(item, described.elements)
    return (replace(item, **{described.elements: ()}) if inner else item), inner


def _store_value(type_: type[Any], value: Any) -> tuple[str, Any]:
    """A value as it is stored, and as it will be read."""
    text = json.dumps(codec.encode(value), separators=(",", ":"), allow_nan=False)
    return text, _read_value(type_, text)


def _read_value(type_: type[Any], text: str) -> Any:
    return codec.decode(type_, json.loads(text), ignore_unknown=True)


def _check_next(row: ItemRow, position: int) -> None:
    if row.position != position:
        raise ValueError(f"item {position} of list {row.list} is missing before {row.position}")


def _with_items(status: T, described: ItemList, items: Sequence[Any]) -> T:
    found: T = replace(status, **{described.field: items})  # type: ignore[type-var]
    return found
