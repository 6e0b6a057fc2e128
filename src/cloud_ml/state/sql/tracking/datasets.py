"""Conditions on the data sets of runs, which are a list in JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import JSON, ColumnElement, and_, cast, exists, func, true

from cloud_ml.domain.tracking.datasets import CONTEXT_TAG
from cloud_ml.domain.tracking.filters import Comparison
from cloud_ml.state.sql.tables import runs

Compare = Callable[[Any], ColumnElement[bool]]


def of_dataset(one: Comparison, compare: Compare, dialect: str) -> ColumnElement[bool]:
    """Whether a data set of the run fulfils a condition. Most runs have none: their list is not
    parsed.
    """
    list_entries, text_of, list_parts = _SQLITE if dialect == "sqlite" else _POSTGRESQL
    entries = list_entries(runs.c.inputs).table_valued("value", name="entry")
    entry = entries.c.value
    if one.key == "context":
        tags = list_parts(entry, "tags").table_valued("value", name="input_tag")
        # Each tag stands beside its entry: the function of tags takes that.
        there = (
            exists()
            .select_from(entries.join(tags, true()))
            .where(
                text_of(entry, "dataset", "name").is_not(None),
                text_of(tags.c.value, "key") == CONTEXT_TAG,
                compare(text_of(tags.c.value, "value")),
            )
        )
    else:
        there = exists().select_from(entries).where(compare(text_of(entry, "dataset", one.key)))
    return and_(runs.c.inputs != "[]", there.correlate(runs))


def _text_in_sqlite(entry: Any, *path: str) -> Any:
    return func.json_extract(entry, "$." + ".".join(path))


def _parts_in_sqlite(entry: Any, key: str) -> Any:
    return func.json_each(entry, f"$.{key}")


def _entries_in_postgresql(column: Any) -> Any:
    return func.json_array_elements(cast(column, JSON))


def _parts_in_postgresql(entry: Any, key: str) -> Any:
    return func.json_array_elements(func.json_extract_path(entry, key))


_SQLITE = (func.json_each, _text_in_sqlite, _parts_in_sqlite)
_POSTGRESQL = (_entries_in_postgresql, func.json_extract_path_text, _parts_in_postgresql)
