"""Links that open one object for whoever has them: ``docs/reference/signatures.md`` in code.

The proof stands in the query: key, expiry and an HMAC-SHA256 over five lines. A link is good for
one method and one path until it expires, or its key is revoked; nothing may be added to its query.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from cloud_ml.auth.headers import is_target, split_target
from cloud_ml.errors import InvalidRequest, Unauthenticated

SCHEME = "CLOUDML1-PRESIGNED"
KEY = "X-Cloudml-Key"
EXPIRES = "X-Cloudml-Expires"
SIGNATURE = "X-Cloudml-Signature"
METHODS = ("GET", "PUT")

_FORMS = {
    KEY: re.compile(r"[A-Za-z0-9._-]{1,128}"),
    EXPIRES: re.compile(r"[1-9][0-9]{0,11}"),
    SIGNATURE: re.compile(r"[0-9a-f]{64}"),
}


@dataclass(frozen=True, slots=True)
class Claim:
    """What a link says of itself. ``longest_s`` is the longest time that one may still be good
    for.
    """

    scheme: ClassVar[str] = SCHEME
    body_hash: ClassVar[str] = "sha256"

    key: str
    date: str
    signature: str
    longest_s: float

    @classmethod
    def from_query(cls, query: str, *, longest_s: float) -> Claim:
        """Read the raw query of a request.

        Raises:
            Unauthenticated: It is not exactly the three pairs of a link, each once.
        """
        pairs = [pair.partition("=") for pair in query.split("&")]
        found = {name: value for name, _, value in pairs}
        if len(pairs) != len(_FORMS) or any(
            not form.fullmatch(found.get(name, "")) for name, form in _FORMS.items()
        ):
            raise Unauthenticated(
                "the link is malformed: nothing may be added to its query, left out or changed",
                field=SIGNATURE,
                allowed=", ".join(_FORMS),
            )
        return cls(found[KEY], found[EXPIRES], found[SIGNATURE], longest_s)

    @property
    def signs_body(self) -> bool:
        """Never: a link is made before the body."""
        return False

    @property
    def bodyless(self) -> bool:
        """Never known: a link is made before the body."""
        return False

    def verify(
        self, secret: str | None, *, method: str, target: str, now: datetime, window_s: float
    ) -> None:
        """Believe the link or refuse it; arguments as for ``signature.Claim.verify``. There is no
        window.

        Raises:
            Unauthenticated: It has expired, is good for too long, or its signature does not fit.
        """
        del window_s
        left = int(self.date) - now.timestamp()
        if left <= 0:
            raise Unauthenticated(
                "the link has expired", field=EXPIRES, value=self.date, hint="ask for another one"
            )
        if left > self.longest_s:
            raise Unauthenticated(
                f"the link is good for {left:.0f} s from now on",
                field=EXPIRES,
                allowed=f"at most {self.longest_s:g} s",
            )
        text = string_to_sign(method, split_target(target)[0], self.key, self.date)
        right = hmac.compare_digest(_hmac(secret or secrets.token_hex(), text), self.signature)
        if secret is None or not right or method not in METHODS:
            raise Unauthenticated(
                "the link is not valid: its key is gone, or it was made for another object or "
                "method",
                field=SIGNATURE,
            )

    def check_body(self, digest: str) -> None:
        """Nothing was said of the body."""

    def once_token(self, method: str, target: str) -> str:
        """Another one each time: a link may be used until it expires."""
        del method, target
        return f"{SCHEME}/{self.key}/{secrets.token_hex(16)}"


def sign(method: str, path: str, *, key: str, secret: str, expires: int) -> str:
    """The path and query of a link.

    Args:
        method: ``GET`` or ``PUT``.
        path: The raw path of the object, percent-encoded, without a query.
        key: The access key in whose name it opens the object.
        secret: Its secret.
        expires: When it ends, in seconds since 1970.

    Raises:
        InvalidRequest: One of them cannot stand in a link.
    """
    if method not in METHODS:
        raise InvalidRequest(
            f"method is {method!r}", field="method", value=method, allowed=" or ".join(METHODS)
        )
    if not is_target(path) or "?" in path:
        raise InvalidRequest(
            "path is malformed", field="path", value=path, allowed="'/' and visible ASCII"
        )
    signature = _hmac(secret, string_to_sign(method, path, key, str(expires)))
    return f"{path}?{KEY}={key}&{EXPIRES}={expires}&{SIGNATURE}={signature}"


def string_to_sign(method: str, path: str, key: str, expires: str) -> str:
    """The five lines under the HMAC, joined by line feeds. No other scheme of ours begins with
    the first.
    """
    return "\n".join((SCHEME, method, path, key, expires))


def _hmac(secret: str, text: str) -> str:
    return hmac.new(secret.encode(), text.encode("ascii"), hashlib.sha256).hexdigest()
