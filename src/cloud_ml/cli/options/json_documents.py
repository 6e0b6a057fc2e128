"""JSON that people write: on the command line, and in files."""

from __future__ import annotations

import json
from typing import Any


def load(text: str) -> Any:
    """The value of a document.

    Raises:
        ValueError: It is not valid JSON, is nested too deep, or has a name twice in one object.
    """
    try:
        return json.loads(text, object_pairs_hook=_without_repeats)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for name, value in pairs:
        if name in document:
            raise ValueError(f"the name {name[:80]!r} is given twice")
        document[name] = value
    return document
