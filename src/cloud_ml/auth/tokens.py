"""Tokens for calls to model services: made offline by whoever holds a key,
``docs/reference/signatures.md`` in code.

``cmt1.<access key>.<expires>.<mac>`` opens every service of the key's organisation, and
``cmt2.<access key>.<expires>.<name>/<version>.<mac>`` one of them. The mac is over all before it,
with a key that is derived from the secret for this purpose alone. Who checks tokens holds derived
keys, with which nothing else can be signed.
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
NARROW_SCHEME = "cmt2"
_PURPOSE = b"cloudml model token 1"
_FORM = re.compile(r"cmt1\.([A-Za-z0-9._-]{1,128})\.([0-9]{1,12})\.([A-Za-z0-9_-]{43})")
_SERVICE = re.compile(r"[a-z0-9-]{1,63}/[A-Za-z0-9._-]{1,63}")
_NARROW_FORM = re.compile(
    rf"cmt2\.([A-Za-z0-9._-]{{1,128}})\.([0-9]{{1,12}})\.({_SERVICE.pattern})\.([A-Za-z0-9_-]{{43}})"
)
"""A model's name has no dot, and there is one '/': so a text can be read in one way only."""
_ACCESS_KEY = re.compile(r"[A-Za-z0-9._-]{1,128}")


def derived_key(secret: str) -> bytes:
    """The key that tokens of a secret are made and checked with."""
    return hmac.digest(secret.encode(), _PURPOSE, hashlib.sha256)


def make_token(access_key: str, secret: str, expires: datetime, *, service: str = "") -> str:
    """A token that opens services of the key's organisation until it expires.

    Args:
        access_key: The access key.
        secret: Its secret, which does not leave the caller's machine.
        expires: When the token ends, to the second.
        service: The only service that it opens, as ``name/version``; all of them if empty.

    Raises:
        InvalidRequest: The access key or the service is none.
    """
    if not _ACCESS_KEY.fullmatch(access_key):
        raise InvalidRequest(
            "access_key is malformed",
            field="access_key",
            allowed="1 to 128 letters, digits, '.', '_' or '-'",
        )
    if service and not _SERVICE.fullmatch(service):
        raise InvalidRequest(
            f"service is {service[:200]!r}; allowed is a model's name, '/' and its version, "
            "such as linear/v1",
            field="service",
            value=service[:200],
            allowed="name/version",
        )
    start = f"{access_key}.{int(expires.timestamp())}"
    text = f"{NARROW_SCHEME}.{start}.{service}" if service else f"{SCHEME}.{start}"
    return f"{text}.{_mac(derived_key(secret), text)}"


@dataclass(frozen=True, slots=True)
class Token:
    """What a token says, read but not yet believed.

    ``expires`` is in seconds since 1970. ``service`` is the only one that it opens, empty for all
    of them.
    """

    access_key: str
    expires: int
    text: str
    mac: str
    service: str = ""

    @classmethod
    def read(cls, token: str) -> Token | None:
        """The parts of a token; ``None`` for what is none."""
        if (found := _FORM.fullmatch(token)) is not None:
            return cls(found[1], int(found[2]), token[: found.end(2)], found[3])
        if (found := _NARROW_FORM.fullmatch(token)) is not None:
            return cls(found[1], int(found[2]), token[: found.end(3)], found[4], found[3])
        return None

    def made_with(self, key: bytes) -> bool:
        """Whether its maker held the secret that ``key`` is derived from."""
        return hmac.compare_digest(_mac(key, self.text), self.mac)


def _mac(key: bytes, text: str) -> str:
    digest = hmac.digest(key, text.encode("ascii"), hashlib.sha256)
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
