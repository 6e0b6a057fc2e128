"""Answers that are sent only if the caller does not have them already."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from starlette.responses import Response

from cloud_ml.api import documents
from cloud_ml.models import codec

_FRESH = {"Cache-Control": "private, no-cache"}
"""May be kept, and must be asked for again each time."""


def tag_of(value: Any) -> str:
    """A name for the content of a wire type."""
    content = json.dumps(codec.encode(value), separators=(",", ":")).encode()
    return hashlib.sha256(content).hexdigest()[:32]


def answer(value: Any, asked: str | None, *, tag: str) -> Response:
    """``value`` as a response, or 304 if ``asked`` (the header ``If-None-Match``) names what it is already.

    Args:
        value: A wire type.
        asked: As it came; ``None`` when the header is absent.
        tag: What names this state of ``value``.
    """
    headers = {"ETag": f'"{tag}"', **_FRESH}
    if asked is not None and _names(asked, tag):
        return Response(None, 304, headers)
    return documents.answer(value, headers=headers)


def _names(asked: str, tag: str) -> bool:
    return any(one.strip().removeprefix("W/") in ("*", f'"{tag}"') for one in asked.split(","))
