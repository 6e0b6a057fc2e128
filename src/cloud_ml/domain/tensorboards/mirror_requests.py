"""What a TensorBoard asks the server for, where it copies the files that it shows. Pure.

It runs in the tenant's sandbox, so nothing of a request is believed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from cloud_ml.errors import InvalidRequest
from cloud_ml.models.common import refuse

LONGEST_REQUEST = 8_192
"""Bytes of a line. A key has 1,024 at most, each of which JSON may write as six."""
_LARGEST_OFFSET = 1 << 62


@dataclass(frozen=True, slots=True)
class ListFiles:
    """The files of a source by their paths, those that sort behind ``after``."""

    source: int
    after: str


@dataclass(frozen=True, slots=True)
class ReadFile:
    """The bytes of a file of a source from ``start``."""

    source: int
    path: str
    start: int


MirrorRequest = ListFiles | ReadFile
_ENDINGS = (".tsv", ".bytes", "projector_config.pbtxt", "sprite.png")


def is_shown(path: str) -> bool:
    """Whether TensorBoard or one of its plug-ins reads a file of that path: checkpoints and models
    may lie beside the files that are shown.
    """
    *folders, name = path.split("/")
    return "tfevents" in name or "plugins" in folders or name.endswith(_ENDINGS)


def parse_request(line: bytes, sources: int) -> MirrorRequest:
    """A request to a TensorBoard's server; ``sources`` is how many folders it shows.

    Raises:
        InvalidRequest: It is none.
    """
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise refuse("request", line[:200], "a line of JSON") from None
    if isinstance(found, dict) and found.keys() == {"list", "after"}:
        return ListFiles(_source(found["list"], sources), _text("after", found["after"]))
    if isinstance(found, dict) and found.keys() == {"read", "path", "start"}:
        path = _text("path", found["path"])
        if not path:
            raise refuse("path", path, "the path of a file")
        return ReadFile(_source(found["read"], sources), path, _offset(found["start"]))
    raise refuse("request", line[:200], "list and after, or read, path and start")


def _source(found: Any, sources: int) -> int:
    return _number("source", found, sources - 1)


def _offset(found: Any) -> int:
    return _number("start", found, _LARGEST_OFFSET)


def _number(field: str, found: Any, largest: int) -> int:
    if type(found) is not int or not 0 <= found <= largest:  # JSON's true is an int, too
        raise _refuse(field, found, f"a number from 0 to {largest}")
    return found


def _text(field: str, found: Any) -> str:
    if not isinstance(found, str):
        raise _refuse(field, found, "a text")
    return found


def _refuse(field: str, found: Any, allowed: str) -> InvalidRequest:
    return refuse(field, ascii(found)[:200], allowed)
