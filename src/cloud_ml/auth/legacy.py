"""The signature of the original client: HMAC-SHA1 over path, timestamp and body MD5.

Neither method nor query is signed and there is no nonce, so a captured signature fits another
method on the same path while the window lasts. Hence the rules around it: a short window (shorter
still without a body, see ``claims.window_s``), one use per mutation, and no right that hangs on a
query parameter. It is accepted per key, and only while the operator lets it be.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from cloud_ml.auth.headers import Headers, check_time, is_target, read, split_target
from cloud_ml.errors import Unauthenticated

SCHEME = "Galaxy V3"
KEY = "X-Xiaomi-Secret-Key-Id"
DATE = "X-Xiaomi-Timestamp"
CONTENT = "X-Xiaomi-Content-MD5"
AUTHORIZATION = "Authorization"

# Builds of OpenSSL for FIPS refuse MD5 unless it is said to guard nothing.
EMPTY_MD5 = hashlib.md5(b"", usedforsecurity=False).hexdigest()
WRONG = "Unauthorized: signature is wrong"
"""The original server's words: its client shows them as they are."""

_FORMS = {
    KEY: (re.compile(r"[A-Za-z0-9._-]{1,128}"), "1 to 128 letters, digits, '.', '_' or '-'"),
    DATE: (re.compile(r"[0-9]{1,12}"), "seconds since 1970 in at most 12 digits"),
    CONTENT: (re.compile(r"[0-9a-f]{32}"), "the body's MD5 in lower-case hex"),
    AUTHORIZATION: (
        re.compile(rf"{SCHEME} [A-Za-z0-9+/]{{27}}="),
        f"{SCHEME} and 28 characters of base64",
    ),
}


@dataclass(frozen=True, slots=True)
class Claim:
    """What a request of the original client says of itself. Texts are kept as they were sent."""

    scheme: ClassVar[str] = SCHEME
    body_hash: ClassVar[str] = "md5"

    key: str
    date: str
    content: str
    signature: str

    @classmethod
    def from_headers(cls, headers: Headers) -> Claim:
        """Read the four headers.

        Raises:
            Unauthenticated: One is missing, given twice or malformed.
        """
        found = read(headers, _FORMS)
        return cls(
            found[KEY], found[DATE], found[CONTENT], found[AUTHORIZATION].removeprefix(SCHEME + " ")
        )

    @property
    def signs_body(self) -> bool:
        """The digest of the body is always signed."""
        return True

    @property
    def bodyless(self) -> bool:
        """Whether the request was signed for an empty body."""
        return self.content == EMPTY_MD5

    def verify(
        self, secret: str | None, *, method: str, target: str, now: datetime, window_s: float
    ) -> None:
        """Believe the claim or refuse it; arguments as for ``signature.Claim.verify``.

        The raw path is verified, as the client addressed it: ``/cloud_ml//v1/train`` is not
        ``/cloud_ml/v1/train``. The method is not part of this scheme's text.

        Raises:
            Unauthenticated: The time or the signature does not fit.
        """
        del method
        check_time(DATE, int(self.date), now=now, window_s=window_s)
        if not is_target(target):
            raise Unauthenticated(
                "the request line cannot be signed", allowed="'/' and visible ASCII"
            )
        # An unknown key is checked against a random secret, and so takes as long as a wrong
        # signature.
        right = hmac.compare_digest(
            signature(
                split_target(target)[0], self.date, self.content, secret or secrets.token_hex()
            ),
            self.signature,
        )
        if secret is None or not right:
            raise Unauthenticated(WRONG, field=AUTHORIZATION)

    def check_body(self, digest: str) -> None:
        """Compare the MD5 (lower-case hex) of the body that came with the one that was signed.

        Raises:
            Unauthenticated: They differ.
        """
        if not hmac.compare_digest(self.content, digest):
            raise Unauthenticated(
                f"the body does not have the MD5 that was signed; it has {digest}",
                field=CONTENT,
                value=self.content,
            )

    def once_token(self, method: str, target: str) -> str:
        """The text that must never be seen twice in a mutation: signature, method and raw path.

        The query stays out because nobody signed it: with it, a captured request would pass again
        with ``?x=1`` added. The price is that two calls that differ in nothing but the query must
        be a second apart.
        """
        facts = "\n".join((self.key, self.signature, method, split_target(target)[0]))
        return f"{SCHEME}/{hashlib.sha256(facts.encode()).hexdigest()}"


def signature(path: str, date: str, content: str, secret: str) -> str:
    """The signature over a raw path, a timestamp and a body MD5, both as in the headers."""
    text = f"{path}\n{date}\n{content}\n"
    return base64.b64encode(
        hmac.new(secret.encode(), text.encode(), hashlib.sha1).digest()
    ).decode()
