"""What the folder of a trainer said of git when it was sent."""

from __future__ import annotations

import re
from typing import Any

from cloud_ml.errors import InvalidRequest
from cloud_ml.models import common

LARGEST_DIFF = 1_000_000
"""Bytes of a diff that are kept; what is longer is cut."""
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}://")
_LONGEST = 500
_KNOWN = ("commit", "branch", "remote", "dirty", "diff", "diff_cut")


def check_git(field: str, value: Any) -> dict[str, Any] | None:
    """The facts in their form: ``commit``, ``branch``, ``remote``, ``dirty``, ``diff`` (the URI of
    the changes that were not committed) and ``diff_cut``. ``False`` leaves them out.

    Raises:
        InvalidRequest: Names what is wrong.
    """
    if value is False:
        return None
    if not isinstance(value, dict):
        raise common.refuse(field, value, 'false, or an object such as {"commit": "…"}')
    if unknown := next((name for name in value if name not in _KNOWN), None):
        raise InvalidRequest(
            f"{field}.{str(unknown)[:80]} is not a known field",
            field=f"{field}.{str(unknown)[:80]}",
            allowed="one of " + ", ".join(_KNOWN),
        )
    for name in ("commit", "branch", "remote", "diff"):
        if (text := value.get(name)) is not None:
            common.check_text(f"{field}.{name}", text, limit=_LONGEST, allow_empty=True)
    for name in ("dirty", "diff_cut"):
        if not isinstance(value.get(name, False), bool):
            raise common.refuse(f"{field}.{name}", value[name], "true or false")
    if not _COMMIT.fullmatch(value.get("commit") or ""):
        raise common.refuse(f"{field}.commit", value.get("commit"), "40 or 64 hex digits")
    if value.get("diff"):
        common.parse_object_uri(f"{field}.diff", value["diff"])
    kept = {name: value[name] for name in _KNOWN if value.get(name)}
    if "remote" in kept:
        kept["remote"] = without_credentials(kept["remote"])
    return kept


def without_credentials(remote: str) -> str:
    """The URL of a repository without user, password, query and fragment.

    ``git@host:path`` is no URL and holds no password. What is neither is left out.
    """
    if "://" not in remote:
        user, at, rest = remote.rpartition("@")
        return f"{user.partition(':')[0]}@{rest}" if at else remote
    if not _SCHEME.match(remote):
        return ""
    from urllib.parse import urlsplit, urlunsplit  # noqa: PLC0415 - most processes meet no URL

    try:
        parts = urlsplit(remote)
    except ValueError:
        return ""
    if "://" in parts.path:
        return ""
    host = parts.netloc.rpartition("@")[2]
    if not host and parts.scheme != "file":
        return ""
    return urlunsplit((parts.scheme, host, parts.path, "", ""))
