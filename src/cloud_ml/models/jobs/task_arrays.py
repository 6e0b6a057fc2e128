"""The indexes of an array job as they are written: ``0-99%8``, as in Slurm."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from cloud_ml.errors import InvalidRequest
from cloud_ml.models import common

ALLOWED = (
    "indexes from 0, such as 0-15, 0-15:4 or 1,3,7, with %N behind them for at most N tasks at a "
    "time"
)
MOST_TASKS = 10_000
"""Most indexes of one array; a server may allow fewer."""
_LONGEST = 4096
_LARGEST_INDEX = 999_999
_PART = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", re.ASCII)
_PARALLEL = re.compile(r"\d{1,9}", re.ASCII)


@dataclass(frozen=True)
class TaskArray:
    """Distinct indexes in ascending order, of which ``parallel`` run at a time.

    Without a number, that is left to the server.
    """

    indices: tuple[int, ...]
    parallel: int | None = None


def task_array(field: str, value: Any) -> TaskArray:
    """The array that ``value`` names.

    Raises:
        InvalidRequest: It names none, or one that is too large.
    """
    if not isinstance(value, str) or not value or len(value) > _LONGEST:
        raise common.refuse(field, value, ALLOWED)
    parts, sign, most = value.replace(" ", "").partition("%")
    ranges = [_range(field, value, part) for part in parts.split(",")]
    count = sum(map(len, ranges))
    if count > MOST_TASKS:
        raise _refuse(field, value, f"it has {count} indexes", f"at most {MOST_TASKS} indexes")
    indices = sorted(index for one in ranges for index in one)
    twice = next((one for one, after in pairwise(indices) if one == after), None)
    if twice is not None:
        raise _refuse(field, value, f"index {twice} is in it twice", "each index once")
    return TaskArray(tuple(indices), _parallel(field, value, most) if sign else None)


def _range(field: str, value: str, part: str) -> range:
    found = _PART.fullmatch(part)
    if found is None:
        raise common.refuse(field, value, ALLOWED)
    first = int(found[1])
    last = first if found[2] is None else int(found[2])
    step = 1 if found[3] is None else int(found[3])
    if last < first:
        raise _refuse(field, value, f"{part} ends before it begins", ALLOWED)
    if last > _LARGEST_INDEX:
        raise _refuse(field, value, f"{last} is too large", f"indexes up to {_LARGEST_INDEX}")
    if not step:
        raise _refuse(field, value, f"the step of {part} is 0", "a step of 1 or more")
    return range(first, last + 1, step)


def _parallel(field: str, value: str, most: str) -> int:
    if not _PARALLEL.fullmatch(most):
        raise common.refuse(field, value, ALLOWED)
    if not int(most):
        raise _refuse(field, value, "no task could run at %0", "%1 or more")
    return int(most)


def _refuse(field: str, value: str, why: str, allowed: str) -> InvalidRequest:
    return InvalidRequest(
        f"{field} is {common.format_value(value)}: {why}; allowed is {allowed}",
        field=field,
        value=value,
        allowed=allowed,
    )
