"""Values of metrics, as clients log them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cloud_ml.api.mlflow.fields import RequestFields
from cloud_ml.domain.metrics.points import LARGEST_STEP, LARGEST_TIME
from cloud_ml.domain.metrics.reports import Value
from cloud_ml.models import common
from cloud_ml.models.tracking.run_keys import check_key


def read_values(documents: Iterable[Mapping[str, Any]]) -> list[Value]:
    """The values of a batch.

    Raises:
        InvalidRequest: One of them is none.
    """
    found: list[Value] = []
    names: set[str] = set()
    for document in documents:
        value = _read_plain(document, names)
        if value is None:
            value = read_value(RequestFields(document))
            names.add(value.name)
        found.append(value)
    return found


def _read_plain(document: Mapping[str, Any], names: set[str]) -> Value | None:
    """A value in the form in which clients usually write it; ``None`` for any other form.

    A batch has a thousand of them. ``names`` were checked before.
    """
    name, value = document.get("key"), document.get("value")
    step, at = document.get("step", 0), document.get("timestamp")
    if type(name) is not str or name not in names or type(value) is not float:
        return None
    if type(step) is not int or not -LARGEST_STEP <= step <= LARGEST_STEP:
        return None
    if type(at) is not int or not 0 <= at <= LARGEST_TIME:
        return None
    return Value(name, step, at, value)


def read_value(fields: RequestFields) -> Value:
    """One value.

    Raises:
        InvalidRequest: It is none.
    """
    key = check_key("metrics.key", fields.text("key"))
    step = fields.integer("step", 0)
    if abs(step) > LARGEST_STEP:
        raise common.refuse("step", step, f"{-LARGEST_STEP} to {LARGEST_STEP}")
    at = check_time("timestamp", fields.integer("timestamp"))
    return Value(key, step, at, fields.number("value"))


def check_time(name: str, milliseconds: int) -> int:
    """A time in milliseconds since 1970.

    Raises:
        InvalidRequest: It lies beyond the times that are kept.
    """
    if not 0 <= milliseconds <= LARGEST_TIME:
        raise common.refuse(name, milliseconds, f"milliseconds since 1970, up to {LARGEST_TIME}")
    return milliseconds
