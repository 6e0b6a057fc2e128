"""The parameters of a job as a JSON file, whose path is in a variable. Pure.

The job carries the text in that variable. Who starts its processes writes the text to a file, and
puts the path of the file in its place.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

VARIABLE = "CLOUDML_PARAMETERS"
PLACEHOLDER = "{parameters_file}"
"""Stands for the path in arguments."""


def encode_parameters(parameters: Mapping[str, Any]) -> str:
    """The text of the file: one JSON object, with numbers as numbers."""
    return json.dumps(dict(parameters))


def decode_parameters(text: str) -> dict[str, Any] | None:
    """The parameters of a text; ``None`` if it is no JSON object of numbers, texts and truth values."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not all(map(_is_value, found.values())):
        return None
    return found


def _is_value(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, (bool, int, str))


def change_parameters(text: str, changes: Mapping[str, Any]) -> str:
    """The text with other values; ``None`` takes a parameter away. A text that is given for a number or
    a truth value is read as one, since command lines have nothing else.
    """
    found = decode_parameters(text) or {}
    for name, value in changes.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = _value_like(found.get(name), value)
    return encode_parameters(found)


def _value_like(before: Any, value: Any) -> Any:
    if isinstance(before, str) or not isinstance(value, str):
        return value
    try:
        read = json.loads(value)
    except ValueError:
        return value
    return read if _is_value(read) else value


def fill_placeholder(arguments: Sequence[str], path: str) -> list[str]:
    """Arguments with the path of the file."""
    return [argument.replace(PLACEHOLDER, path) for argument in arguments]
