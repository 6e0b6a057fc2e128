"""The signature of our own clients: ``docs/reference/signatures.md`` in code.

The client proves that it holds a key's secret by an HMAC-SHA256 over six lines: method, raw path,
sorted query, date, nonce and content hash. The host is not among them, since proxies rewrite it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from cloud_ml.auth.headers import Headers, check_time, is_method, is_target, read, split_target
from cloud_ml.errors import InvalidRequest, Unauthenticated

SCHEME = "CLOUDML1-HMAC-SHA256"
KEY = "X-Cloudml-Key"
DATE = "X-Cloudml-Date"
NONCE = "X-Cloudml-Nonce"
CONTENT = "X-Cloudml-Content-Sha256"
AUTHORIZATION = "Authorization"

UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"
"""Stands for the content hash of an upload that is signed before its bytes are known."""
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()

_FORMS = {
    KEY: (re.compile(r"[A-Za-z0-9._-]{1,128}"), "1 to 128 letters, digits, '.', '_' or '-'"),
    DATE: (re.compile(r"[0-9]{1,12}"), "seconds since 1970 in at most 12 digits"),
    NONCE: (re.compile(r"[A-Za-z0-9_-]{16,64}"), "16 to 64 letters, digits, '_' or '-'"),
    CONTENT: (
        re.compile(rf"[0-9a-f]{{64}}|{UNSIGNED_PAYLOAD}"),
        f"the body's SHA-256 in lower-case hex, or {UNSIGNED_PAYLOAD}",
    ),
    AUTHORIZATION: (
        re.compile(rf"{SCHEME} [0-9a-f]{{64}}"),
        f"{SCHEME} and 64 lower-case hex digits",
    ),
}


@dataclass(frozen=True, slots=True)
class Claim:
    """What a request says of itself, read but not yet believed. Texts are kept as they were
    sent.
    """

    scheme: ClassVar[str] = SCHEME
    body_hash: ClassVar[str] = "sha256"

    key: str
    date: str
    nonce: str
    content: str
    signature: str

    @classmethod
    def from_headers(cls, headers: Headers) -> Claim:
        """Read the five headers.

        Raises:
            Unauthenticated: One is missing, given twice or malformed.
        """
        found = read(headers, _FORMS)
        signature = found[AUTHORIZATION].removeprefix(SCHEME + " ")
        return cls(found[KEY], found[DATE], found[NONCE], found[CONTENT], signature)

    @property
    def signs_body(self) -> bool:
        """Whether the digest of the body was signed."""
        return self.content != UNSIGNED_PAYLOAD

    @property
    def bodyless(self) -> bool:
        """Whether the request was signed for an empty body."""
        return self.content == EMPTY_SHA256

    def verify(
        self, secret: str | None, *, method: str, target: str, now: datetime, window_s: float
    ) -> None:
        """Believe the claim or refuse it.

        Args:
            secret: The key's secret; ``None`` for a key that is unknown or switched off, which
                takes as long and reads the same as a wrong secret.
            method: The method of the request line.
            target: Path and query of the request line, raw.
            now: The server's time.
            window_s: How far the request's time may be from ``now``, either way, in seconds.

        Raises:
            Unauthenticated: The time or the signature does not fit.
        """
        check_time(DATE, int(self.date), now=now, window_s=window_s)
        if not is_method(method) or not is_target(target):
            raise Unauthenticated(
                "the request line cannot be signed", allowed="an upper-case method and a raw path"
            )
        text = string_to_sign(method, target, self.date, self.nonce, self.content)
        right = hmac.compare_digest(_hmac(secret or secrets.token_hex(), text), self.signature)
        if secret is None or not right:
            raise Unauthenticated(
                "the signature is wrong: the key is unknown, or its secret, the method, path "
                "or query differ",
                field=AUTHORIZATION,
                hint="check the access key and its secret, and that no proxy rewrites the path",
            )

    def check_body(self, digest: str) -> None:
        """Compare the SHA-256 (lower-case hex) of the body that came with the one that was signed.

        Raises:
            Unauthenticated: They differ. An unsigned payload always passes: its digest is checked
                by whoever stores it.
        """
        if self.content != UNSIGNED_PAYLOAD and not hmac.compare_digest(self.content, digest):
            raise Unauthenticated(
                f"the body does not have the digest that was signed; it has {digest}",
                field=CONTENT,
                value=self.content,
            )

    def once_token(self, method: str, target: str) -> str:
        """The text that must never be seen twice in a mutation: whose nonce it is and the nonce.

        Method and target are signed, so the nonce alone tells one request from another.
        """
        del method, target
        return f"{SCHEME}/{self.key}/{self.nonce}"


def content_sha256(body: bytes) -> str:
    """The content hash of a body, in lower-case hex."""
    return hashlib.sha256(body).hexdigest()


def sign(
    method: str,
    target: str,
    *,
    key: str,
    secret: str,
    now: datetime,
    content: str = EMPTY_SHA256,
    nonce: str | None = None,
) -> dict[str, str]:
    """The headers that sign a request. A retry signs again; the server carries out one request of a
    nonce.

    Args:
        method: Such as ``POST``; upper case.
        target: Path and query exactly as they will stand on the request line, percent-encoded.
        key: The access key.
        secret: Its secret.
        now: The client's time.
        content: ``content_sha256(body)``, or ``UNSIGNED_PAYLOAD``.
        nonce: That of an earlier try, if the server is to carry out only one of the two; otherwise
            drawn at random.

    Raises:
        InvalidRequest: One of them cannot stand in a request.
    """
    if not is_method(method):
        raise InvalidRequest(
            "method is malformed", field="method", value=method, allowed="upper-case letters"
        )
    if not is_target(target):
        raise InvalidRequest(
            "target is malformed",
            field="target",
            value=target,
            allowed="'/' and visible ASCII, percent-encoded",
        )
    headers = {
        KEY: key,
        DATE: str(int(now.timestamp())),
        NONCE: nonce or secrets.token_urlsafe(18),
        CONTENT: content,
    }
    for name, value in headers.items():
        pattern, words = _FORMS[name]
        if not pattern.fullmatch(value):
            raise InvalidRequest(
                f"{name} is {value!r}; allowed is {words}", field=name, value=value, allowed=words
            )
    text = string_to_sign(method, target, headers[DATE], headers[NONCE], content)
    return {**headers, AUTHORIZATION: f"{SCHEME} {_hmac(secret, text)}"}


def string_to_sign(method: str, target: str, date: str, nonce: str, content: str) -> str:
    """The six lines under the HMAC, joined by line feeds, none at the end."""
    path, query = split_target(target)
    return "\n".join((method, path, canonical_query(query), date, nonce, content))


def canonical_query(query: str) -> str:
    """The raw query with its pairs in order: by name, then by value, bytewise.

    Pairs are what stands between ``&``; a pair's name ends at its first ``=``. Nothing is decoded
    or re-encoded, dropped or added: ``a`` and ``a=`` differ (the first sorts before the second),
    ``+`` and ``%20`` differ, ``%2f`` and ``%2F`` differ, and an empty pair stays. No query and an
    empty one are the same.
    """
    return "&".join(sorted(query.split("&"), key=_name_then_value))


def _name_then_value(pair: str) -> tuple[str, str, str]:
    return pair.partition("=")


def _hmac(secret: str, text: str) -> str:
    return hmac.digest(secret.encode(), text.encode("ascii"), "sha256").hex()
