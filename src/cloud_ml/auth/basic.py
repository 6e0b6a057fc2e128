"""User and password in a request: the two halves of an access key, for clients that know no other
way.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from dataclasses import dataclass, field

from cloud_ml.auth.headers import Headers
from cloud_ml.errors import Unauthenticated

SCHEME = "Basic"
_LONGEST = 1024


@dataclass(frozen=True, slots=True)
class BasicCredentials:
    """What the header holds, not yet believed."""

    access_key: str
    secret: str = field(repr=False)

    def check(self, secret: str | None) -> None:
        """Compare with the secret of the key, in constant time; ``None`` for an unknown key.

        Raises:
            Unauthenticated: They differ.
        """
        # An unknown key is compared as well: the time of the answer does not tell which keys exist.
        kept = secret if secret is not None else "0" * len(self.secret)
        same = hmac.compare_digest(kept.encode(), self.secret.encode())
        if secret is None or not same:
            raise Unauthenticated(
                "The user or the password is wrong.",
                field="Authorization",
                allowed="an access key as user, and its secret as password",
            )


def is_sent(headers: Headers) -> bool:
    """Whether a request carries user and password in any header ``Authorization``."""
    for name, value in headers:  # noqa: SIM110 - a generator is a call for each header
        if name.lower() == "authorization" and value.lstrip()[:6].lower() == "basic ":
            return True
    return False


def read(headers: Headers) -> BasicCredentials:
    """User and password of a request.

    Raises:
        Unauthenticated: The header is there twice or malformed.
    """
    sent = [value for name, value in headers if name.lower() == "authorization"]
    text = _decode_header(sent[0]) if len(sent) == 1 and len(sent[0]) <= _LONGEST else ""
    user, colon, password = text.partition(":")
    if not colon:
        raise Unauthenticated(
            "The header Authorization is malformed or was given twice.",
            field="Authorization",
            allowed="once, user and password in Base64",
        )
    return BasicCredentials(user, password)


def _decode_header(header: str) -> str:
    try:
        return base64.b64decode(header.strip()[6:].strip(), validate=True).decode("utf-8")
    except (ValueError, binascii.Error):
        return ""
