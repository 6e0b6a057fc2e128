"""How many tasks an elastic role may have, as it is written: ``2:8``, or an object."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cloud_ml.errors import InvalidRequest
from cloud_ml.models import common

EVERY_S = "every_s"
"""The key of ``elastic`` that is no role; names of roles have no underscore."""
DEFAULT_EVERY_S = 600
ALLOWED = 'an object such as {"worker": {"min": 2, "max": 8}}'
_MOST_TASKS = 1000
_LONGEST_EVERY_S = 30 * 86400
_RANGE = re.compile(r"(\d{1,9}):(\d{1,9})", re.ASCII)


@dataclass(frozen=True)
class TaskRange:
    """A role has from ``least`` to ``most`` tasks."""

    least: int
    most: int

    def __str__(self) -> str:
        return f"{self.least}:{self.most}"


def range_in(field: str, value: Any) -> TaskRange | None:
    """The range that a count names; ``None`` for a number or anything else.

    Raises:
        InvalidRequest: No job could have so many tasks.
    """
    found = _RANGE.fullmatch(value.replace(" ", "")) if isinstance(value, str) else None
    if found is None:
        return None
    return _check_range(field, value, TaskRange(int(found[1]), int(found[2])))


def check_tasks(field: str, value: Any) -> int | str:
    """A number of tasks, or the least and the most of them."""
    if (found := range_in(field, value)) is not None:
        return str(found)
    if isinstance(value, str) and not value.isdigit():
        allowed = f"a whole number from 1 to {_MOST_TASKS}, or the least and the most, such as 2:8"
        raise common.refuse(field, value, allowed)
    return common.check_count(field, value, most=_MOST_TASKS)


def check_elastic(field: str, value: Any) -> dict[str, Any]:
    """``elastic`` in its canonical form.

    Raises:
        InvalidRequest: Names the part that is wrong.
    """
    if not isinstance(value, Mapping):
        raise common.refuse(field, value, ALLOWED)
    checked: dict[str, Any] = {}
    for name, part in value.items():
        if name == EVERY_S:
            path = f"{field}.{EVERY_S}"
            checked[name] = common.check_count(path, part, least=0, most=_LONGEST_EVERY_S)
        else:
            checked[common.check_name(field, name)] = _role(f"{field}.{name}", part)
    if not checked.keys() - {EVERY_S}:
        raise common.refuse(field, value, ALLOWED)
    return checked


def ranges_of(elastic: Mapping[str, Any] | None) -> dict[str, TaskRange]:
    """The roles of a checked ``elastic``."""
    roles = {name: part for name, part in (elastic or {}).items() if name != EVERY_S}
    return {name: TaskRange(part["min"], part["max"]) for name, part in roles.items()}


def every_s_of(elastic: Mapping[str, Any] | None) -> float:
    """How many seconds pass at least from one change to the next larger number of tasks."""
    return float((elastic or {}).get(EVERY_S, DEFAULT_EVERY_S))


def _role(field: str, value: Any) -> dict[str, int]:
    if (found := range_in(field, value)) is not None:
        return {"min": found.least, "max": found.most}
    if not isinstance(value, Mapping):
        raise common.refuse(field, value, 'an object such as {"min": 2, "max": 8}')
    for name in value:
        if name not in ("min", "max"):
            raise InvalidRequest(
                f"{field}.{name[:63]} is not a known field",
                field=f"{field}.{name[:63]}",
                value=value[name],
                allowed="min and max",
            )
    for name in ("min", "max"):
        if name not in value:
            raise InvalidRequest(
                f"{field}.{name} is missing",
                field=f"{field}.{name}",
                allowed=f"a whole number from 1 to {_MOST_TASKS}",
            )
    least, most = (
        common.check_count(f"{field}.{name}", value[name], most=_MOST_TASKS)
        for name in ("min", "max")
    )
    _check_range(field, f"{least}:{most}", TaskRange(least, most))
    return {"min": least, "max": most}


def _check_range(field: str, value: str, tasks: TaskRange) -> TaskRange:
    if tasks.least < 1 or tasks.most > _MOST_TASKS:
        raise common.refuse(field, value, f"from 1 to {_MOST_TASKS} tasks, such as 2:8")
    if tasks.least > tasks.most:
        raise InvalidRequest(
            f"{field} is {value}: the least, {tasks.least}, is more than the most, {tasks.most}",
            field=field,
            value=value,
            allowed="the least before the most, such as 2:8",
        )
    if tasks.most < 2:
        raise InvalidRequest(
            f"{field} is {value}: a job of one task cannot be elastic",
            field=field,
            value=value,
            allowed="a most of 2 or more, such as 1:4",
        )
    return tasks
