"""Where objects are: URIs, the paths of the API that stand for them, and what is said of them in
headers.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from cloud_ml.models.common import ObjectUri, parse_object_uri, refuse
from cloud_ml.sdk.messages import key_path, segment

PATH = "/api/v1/storage"
UPLOAD_TIMEOUT_S = 600.0
"""How long the server may be silent behind an upload: it checks the digest and flushes the disk."""


def object_uri(uri: str) -> ObjectUri:
    """Read the URI of an object.

    Raises:
        InvalidRequest: It is malformed, or names a bucket or a folder.
    """
    where = parse_object_uri("uri", uri)
    if not where.key or where.key.endswith("/"):
        raise refuse("uri", uri, "an object such as fds://bucket/path, not a bucket or a folder")
    return where


def object_path(where: ObjectUri) -> str:
    """The path of the API that stands for an object."""
    return f"{PATH}/{segment(where.bucket)}/{key_path(where.key)}"


def upload_headers(*, only_if_absent: bool) -> dict[str, str]:
    """The headers of an object that is sent as a whole."""
    return {
        "Content-Type": "application/octet-stream",
        **({"If-None-Match": "*"} if only_if_absent else {}),
    }


def repr_digest(header: str | None) -> str | None:
    """The SHA-256 of a header ``Repr-Digest`` in hex; ``None`` where there is none."""
    text = (header or "").strip()
    if not (text.startswith("sha-256=:") and text.endswith(":")):
        return None
    try:
        return base64.b64decode(text[9:-1], validate=True).hex()
    except ValueError:
        return None


def time_of(header: str | None) -> datetime:
    """The time in a header such as ``Last-Modified``; 1970 where there is none."""
    try:
        moment = parsedate_to_datetime(header or "")
    except (ValueError, OverflowError):
        return datetime.fromtimestamp(0, UTC)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
