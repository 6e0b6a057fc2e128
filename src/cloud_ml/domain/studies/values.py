"""Values of parameters: what one may be, and when two are the same."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cloud_ml.models.common import is_unicode, refuse

Value = float | int | str | bool
Parameters = Mapping[str, Value]
"""The values of one trial, by the names of the parameters."""


@dataclass(frozen=True)
class Suggestion:
    """The parameters of a trial. With a ``problem``, they are others than were asked for. One of a
    population has the number of the ``member`` whose turn it is, and of the trial from whose
    checkpoint it goes on, its ``parent``.
    """

    parameters: Parameters
    problem: str = ""
    parent: int | None = None
    member: int | None = None


LONGEST_NAME = 100
NAME = re.compile(rf"[A-Za-z_][A-Za-z0-9_.-]{{0,{LONGEST_NAME - 1}}}")
"""The name of a parameter."""
_NUMBER = re.compile(r"[-+]?[0-9]{1,30}(\.[0-9]{0,30})?([eE][-+]?[0-9]{1,3})?")
_LONGEST_VALUE = 1000


def same(one: Value, other: Any) -> bool:
    """Whether two values are one; ``True`` is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def number_of(field: str, value: Any) -> float:
    """A number, also as a text.

    Raises:
        InvalidRequest: It is none, or not finite.
    """
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = float(value)  # YAML 1.1 takes 1e-4 for a text
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not _finite(value):
        raise refuse(field, value, "a number")
    return float(value)


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def check_value(field: str, value: Any) -> None:
    """Refuse what cannot be the value of a parameter.

    Raises:
        InvalidRequest: It is no number, truth value or text, or cannot be an argument.
    """
    fine = isinstance(value, bool) or (isinstance(value, (int, float)) and _finite(value))
    if not fine and not (isinstance(value, str) and _is_argument(value)):
        raise refuse(
            field,
            value,
            f"a number, true or false, or a Unicode text of {_LONGEST_VALUE} at most without NUL",
        )


def _is_argument(text: str) -> bool:
    return len(text) <= _LONGEST_VALUE and "\0" not in text and is_unicode(text)
