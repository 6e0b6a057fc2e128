"""The space of a study, as a Python program writes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloud_ml.models.common import refuse


def checked_space(space: Mapping[str, Any]) -> dict[str, Any]:
    """The same space.

    Raises:
        InvalidRequest: A parameter is a pair of numbers. Other tuners take it for a range, and the
            server for a list of two values.
    """
    for name, values in space.items():
        if isinstance(values, tuple) and len(values) == 2 and all(map(_is_number, values)):
            low, high = values
            raise refuse(
                f"space.{name}",
                values,
                f'{{"min": {low!r}, "max": {high!r}}} for a range (with "scale": "log" if you like), '
                f"or the list [{low!r}, {high!r}] for two values",
            )
    return dict(space)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
