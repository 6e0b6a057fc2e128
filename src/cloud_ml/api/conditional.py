"""Answers that are sent only if the caller does not have them already."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

from fastapi import Header
from starlette.responses import Response

from cloud_ml.api import documents
from cloud_ml.models import codec

IfNoneMatch = Annotated[str | None, Header(max_length=1000)]
_FRESH = {"Cache-Control": "private, no-cache"}
"""May be kept, and must be asked for again each time."""


def not_modified(if_none_match: str | None, tag: str) -> Response | None:
    """304 if ``If-None-Match`` (``None`` without that header) names what there is already."""
    if if_none_match is not None and _names(if_none_match, tag):
        return Response(None, 304, _headers(tag))
    return None


def answer(value: Any, if_none_match: str | None, *, tag: str) -> Response:
    """``value`` as a response, or 304.

    Args:
        value: A wire type.
        if_none_match: See ``not_modified``.
        tag: What names this state of ``value``.
    """
    return not_modified(if_none_match, tag) or documents.answer(value, headers=_headers(tag))


def answer_by_content(value: Any, if_none_match: str | None, **apart: int) -> Response:
    """The same, with a tag made of the content. ``apart`` stands in the document as well, and
    not in the tag.
    """
    plain = {name: item for name, item in codec.encode(value).items() if name not in apart}
    content = documents.text(plain)
    tag = hashlib.sha256(content.encode()).hexdigest()[:32]
    whole = content[:-1] + "".join(f',"{name}":{number}' for name, number in apart.items()) + "}"
    return not_modified(if_none_match, tag) or Response(
        whole.encode(), 200, _headers(tag), media_type="application/json"
    )


def _headers(tag: str) -> dict[str, str]:
    return {"ETag": f'"{tag}"', **_FRESH}


def _names(if_none_match: str, tag: str) -> bool:
    # RFC 9110, section 13.1.2: If-None-Match compares weakly, so `W/` makes no difference.
    return any(
        one.strip().removeprefix("W/") in ("*", f'"{tag}"') for one in if_none_match.split(",")
    )
