"""Copies of jobs: their names, and what they cannot change."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from cloud_ml.errors import InvalidRequest

# The number of a trial stays: "rates-hp-13" would be the name of a trial to come.
_NUMBERED = re.compile(r"(?<!-hp)-[1-9][0-9]?$")
_MOST = 20
_LONGEST = 63


def free_names(name: str, word: str = "") -> Iterator[str]:
    """Names that a copy of a job may have, the best first: ``linear-2`` for ``linear``.

    With ``word``, it stands before the number: ``linear-again-2``.
    """
    base = _NUMBERED.sub("", name)
    if word:
        base = f"{base[: _LONGEST - len(word) - 4]}-{word}"
        yield base
    for number in range(2, _MOST + 2):
        ending = f"-{number}"
        yield base[: _LONGEST - len(ending)].rstrip("-") + ending


def check_code_stays(fields: Mapping[str, Any]) -> None:
    """Refuse code of this machine: a copy has that of its job, or other code on the server.

    Raises:
        InvalidRequest: ``trainer_uri`` is a local path.
    """
    uri = fields.get("trainer_uri")
    if isinstance(uri, str) and "://" not in uri:
        raise InvalidRequest(
            f"trainer_uri is {uri!r}; a copy of a job has the same code",
            field="trainer_uri",
            value=uri,
            allowed="a URI such as fds://bucket/path, or nothing",
            hint="To submit other code: cloudml jobs rerun JOB -u PATH.",
        )
