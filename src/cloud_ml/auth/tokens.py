"""Tokens for calls to model services: made offline by whoever holds a key, ``docs/reference/signatures.md`` in code.

``cmt1.<access key>.<expires>.<mac>``: the mac is over all before it, with a key that is derived from the secret for
this purpose alone. Who checks tokens holds derived keys, with which nothing else can be signed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass
from datetime import datetime

from cloud_ml.errors import InvalidRequest

SCHEME = "cmt1"
_PURPOSE = b"cloudml model token 1"
_FORM = re.compile(r"cmt1\.([A-Za-z0-9._-]{1,128})\.([0-9]{1,12})\.([A-Za-z0-9_-]{43})")
_ACCESS_KEY = re.compile(r"[A-Za-z0-9._-]{1,128}")


def derived_key(secret: str) -> bytes:
    """The key that tokens of a secret are made and checked with."""
    return hmac.digest(secret.encode(), _PURPOSE, hashlib.sha256)


def make_token(access_key: str, secret: str, expires: datetime) -> str:
    """A token that opens services of the key's organisation until it expires.

    Args:
        access_key: The access key.
        secret: Its secret, which does not leave the caller's machine.
        expires: When the token ends, to the second.

    Raises:
        InvalidRequest: The access key is none.
    """
    if not _ACCESS_KEY.fullmatch(access_key):
        raise InvalidRequest(
            "access_key is malformed", field="access_key", allowed="1 to 128 letters, digits, '.', '_' or '-'"
        )
    text = f"{SCHEME}.{access_key}.{int(expires.timestamp())}"
    return f"{text}.{_mac(derived_key(secret), text)}"


@dataclass(frozen=True, slots=True)
class Token:
    """What a token says, read but not yet believed. ``expires`` is in seconds since 1970."""

    access_key: str
    expires: int
    text: str
    mac: str

    @classmethod
    def read(cls, token: str) -> Token | None:
        """The parts of a token; ``None`` for what is none."""
        found = _FORM.fullmatch(token)
        return cls(found[1], int(found[2]), token[: found.end(2)], found[3]) if found is not None else None

    def made_with(self, key: bytes) -> bool:
        """Whether its maker held the secret that ``key`` is derived from."""
        return hmac.compare_digest(_mac(key, self.text), self.mac)


def _mac(key: bytes, text: str) -> str:
    digest = hmac.digest(key, text.encode("ascii"), hashlib.sha256)
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
