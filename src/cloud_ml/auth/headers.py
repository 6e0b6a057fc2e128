"""What both signature schemes share: reading their headers strictly, and judging a request's time.

A header that is missing, given twice or malformed is refused before any cryptography: a proxy and
this server can then never mean two different values by one name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from cloud_ml.errors import Unauthenticated

Headers = Iterable[tuple[str, str]]

_TARGET = re.compile(r"/[!-~]*")
_METHOD = re.compile(r"[A-Z]{1,32}")


def read(headers: Headers, forms: Mapping[str, tuple[re.Pattern[str], str]]) -> dict[str, str]:
    """The value of each header named in ``forms``, exactly as it was sent.

    Args:
        headers: Name and value pairs as they came; names in any case, each as often as it was sent.
        forms: Header name → the pattern its whole value must have, and that pattern in words.

    Raises:
        Unauthenticated: A header is missing, given twice, or not of its form. The message never
            repeats a value: one of them is a signature.
    """
    names = {name.lower(): name for name in forms}
    found: dict[str, str] = {}
    for sent_name, value in headers:
        name = names.get(sent_name.lower())
        if name is None:
            continue
        if name in found:
            raise Unauthenticated(f"the header {name} was given twice", field=name, allowed="once")
        found[name] = value
    for name, (pattern, words) in forms.items():
        if name not in found:
            raise Unauthenticated(f"the header {name} is missing", field=name, allowed=words)
        if not pattern.fullmatch(found[name]):
            raise Unauthenticated(
                f"the header {name} is malformed; allowed is {words}", field=name, allowed=words
            )
    return found


def check_time(field: str, sent: int, *, now: datetime, window_s: float) -> None:
    """Refuse a request whose time is further than ``window_s`` seconds from ``now``, either way.

    Raises:
        Unauthenticated: It is; the message carries the server's time, so that a client can tell a
            wrong clock from a wrong key.
    """
    server = int(now.timestamp())
    if abs(sent - server) <= window_s:
        return
    raise Unauthenticated(
        f"the request's time {sent} is {abs(sent - server)} s "
        f"{'behind' if sent < server else 'ahead of'} the server's time {server} "
        f"({now.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}); allowed are {window_s:g} s either way",
        field=field,
        value=sent,
        allowed=f"within {window_s:g} s of {server}",
        hint="set the clock of this machine, or send the request again soon after signing it",
    )


def is_method(method: str) -> bool:
    """Whether ``method`` is upper-case letters, as methods are on the request line."""
    return _METHOD.fullmatch(method) is not None


def is_target(target: str) -> bool:
    """Whether ``target`` is a request target in origin form: '/…', visible ASCII, no fragment."""
    return _TARGET.fullmatch(target) is not None and "#" not in target


def split_target(target: str) -> tuple[str, str]:
    """Raw path and raw query of a request target; nothing is decoded, ``//`` stays what it is."""
    path, _, query = target.partition("?")
    return path, query
