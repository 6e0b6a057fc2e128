"""The parameters of a job: its arguments, parsed to key and value."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

FLAG = re.compile(r"--?([A-Za-z_][\w.\-/]*)(?:=(.*))?", re.DOTALL)
"""A flag, such as ``--lr`` or ``--lr=0.1``."""
MOST_PARAMETERS, LONGEST_KEY, LONGEST_VALUE = 200, 250, 6000


def as_parameters(values: Mapping[str, Any]) -> Mapping[str, str]:
    """Values of JSON as texts; ``true`` and ``false`` as in JSON."""
    texts = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in values.items()
    }
    kept = [(name, text) for name, text in texts.items() if len(name) <= LONGEST_KEY]
    return {name: text[:LONGEST_VALUE] for name, text in kept[:MOST_PARAMETERS]}


def parameters_of(arguments: Sequence[str]) -> Mapping[str, str]:
    """``--lr 0.1``, ``--lr=0.1`` and a flag without a value, which is ``true``.

    The last one of a name counts, as with ``argparse``. What is no flag has no name and is left out.
    """
    found: dict[str, str] = {}
    at = 0
    while at < len(arguments):
        match = FLAG.fullmatch(arguments[at])
        at += 1
        if match is None:
            continue
        name, value = match[1], match[2]
        if value is None:
            behind = arguments[at] if at < len(arguments) else None
            if behind is None or FLAG.fullmatch(behind):
                value = "true"
            else:
                value, at = behind, at + 1
        if len(name) <= LONGEST_KEY and len(found) < MOST_PARAMETERS:
            found[name] = value[:LONGEST_VALUE]
    return found
