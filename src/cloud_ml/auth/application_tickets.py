"""How a browser gets into an application of a tenant, such as a TensorBoard.

The server makes a *ticket*, which is good once and for a minute. Who brings it to the application's
origin gets a *session*, a cookie. Both are signed with the key of that one application, so that
neither opens another. Both name the access key of their holder: they work as long as it does.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass

_MAC = "([A-Za-z0-9_-]{43})"
_HOLDER = "([A-Za-z0-9._-]{1,128})"
_TIME = "([0-9]{1,12})"
_TIME_MS = "([0-9]{1,15})"
_TICKET = re.compile(
    rf"cat1\.{_HOLDER}\.{_TIME_MS}\.{_TIME}\.{_TIME}\.([A-Za-z0-9_-]{{22}})\.{_MAC}"
)
_SESSION = re.compile(rf"cas1\.{_HOLDER}\.{_TIME}\.{_MAC}")


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a ticket says that was made with the application's key. Times are in seconds since
    1970, and milliseconds where that is said: a gateway that dies is there again within a second.

    ``holder`` is an access key. The session ends at ``session_until``. No other ticket has the
    ``nonce``.
    """

    holder: str
    issued_ms: int
    expires: int
    session_until: int
    nonce: str


@dataclass(frozen=True, slots=True)
class Session:
    """What a session says that was made with the application's key."""

    holder: str
    until: int


def make_ticket(
    key: bytes, holder: str, *, issued_ms: int, expires: int, session_until: int
) -> str:
    """A ticket of the application with this key."""
    text = f"cat1.{holder}.{issued_ms}.{expires}.{session_until}.{secrets.token_urlsafe(16)}"
    return f"{text}.{_mac(key, text)}"


def read_ticket(key: bytes, text: str) -> Ticket | None:
    """What a ticket says; ``None`` if it was not made with the key."""
    found = _TICKET.fullmatch(text)
    if found is None or not _made_with(key, text, found[6]):
        return None
    return Ticket(found[1], int(found[2]), int(found[3]), int(found[4]), found[5])


def make_session(key: bytes, holder: str, until: int) -> str:
    """A session of the application with this key."""
    text = f"cas1.{holder}.{until}"
    return f"{text}.{_mac(key, text)}"


def read_session(key: bytes, text: str) -> Session | None:
    """What a session says; ``None`` if it was not made with the key."""
    found = _SESSION.fullmatch(text)
    if found is None or not _made_with(key, text, found[3]):
        return None
    return Session(found[1], int(found[2]))


def _made_with(key: bytes, text: str, mac: str) -> bool:
    return hmac.compare_digest(_mac(key, text.removesuffix(f".{mac}")), mac)


def _mac(key: bytes, text: str) -> str:
    digest = hmac.digest(key, text.encode("ascii"), hashlib.sha256)
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
