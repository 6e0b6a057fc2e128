"""The signature of the original storage client: HMAC-SHA1 over method, headers, path and
sub-resources.

Described as its client sends it. The text under the HMAC is, each on a line of its own: the method,
``Content-MD5``, ``Content-Type``, the date (``X-Xiaomi-Date``, or else ``Date``), every
``X-Xiaomi-`` header that is not empty, by name, as ``name:value``; then the *decoded* path, with
the pairs of the query that name a sub-resource.

All other pairs of the query, and a body without ``Content-MD5``, are not signed, and there is no
nonce. So this scheme opens the rooms of the storage protocol only, a mutation is taken once, and
nothing may be done there because of a pair that was not signed but what its caller could ask for
anyway.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import ClassVar
from urllib.parse import unquote

from cloud_ml.auth.headers import Headers, check_time, is_method, is_target, split_target
from cloud_ml.errors import Unauthenticated

SCHEME = "Galaxy-V2"
AUTHORIZATION = "Authorization"
CONTENT = "Content-MD5"
TYPE = "Content-Type"
DATE = "Date"
PREFIX = "x-xiaomi-"
OWN_DATE = PREFIX + "date"

SUBRESOURCES = frozenset(
    {"acl", "quota", "uploads", "partNumber", "uploadId", "storageAccessToken", "metadata"}
)
"""The names in a query that are signed."""

WRONG = (
    "the signature is wrong: the key is unknown, or its secret, the method, path or headers differ"
)

_MD5 = (re.compile(r"[0-9a-f]{32}"), "the body's MD5 in lower-case hex")
_PLAIN = (re.compile(r"[ -~]{0,1024}"), "at most 1024 characters of visible ASCII")
_WHEN = (
    re.compile(r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT"),
    "a time such as 'Sun, 18 Sep 2016 13:04:20 GMT'",
)
_CREDENTIALS = (
    re.compile(rf"{SCHEME} ([A-Za-z0-9._-]{{1,128}}):([A-Za-z0-9+/]{{27}}=)"),
    f"{SCHEME}, the access key, ':' and 28 characters of base64",
)
_FORMS = {
    AUTHORIZATION.lower(): _CREDENTIALS,
    CONTENT.lower(): _MD5,
    DATE.lower(): _WHEN,
    OWN_DATE: _WHEN,
}


@dataclass(frozen=True, slots=True)
class Claim:
    """What a request of the storage client says of itself.

    Texts are kept as they were sent, but for ``date``: seconds since 1970. ``own`` are the
    ``X-Xiaomi-`` headers that are not empty, by their names in lower case.
    """

    scheme: ClassVar[str] = SCHEME
    body_hash: ClassVar[str] = "md5"

    key: str
    signature: str
    date: str
    when: str
    content: str = ""
    content_type: str = ""
    own: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_headers(cls, headers: Headers) -> Claim:
        """Read what is signed.

        Raises:
            Unauthenticated: A header is missing, given twice or malformed.
        """
        found = _read(headers)
        credentials = _CREDENTIALS[0].fullmatch(found.get(AUTHORIZATION.lower(), ""))
        if credentials is None:
            raise _invalid_signature(AUTHORIZATION, "missing", _CREDENTIALS[1])
        when = found.get(OWN_DATE) or found.get(DATE.lower())
        if when is None:
            raise _invalid_signature(DATE, "missing", _WHEN[1])
        return cls(
            key=credentials[1],
            signature=credentials[2],
            date=str(_seconds(when)),
            when="" if OWN_DATE in found else when,
            content=found.get(CONTENT.lower(), ""),
            content_type=found.get(TYPE.lower(), ""),
            own={name: value for name, value in found.items() if name.startswith(PREFIX) and value},
        )

    @property
    def signs_body(self) -> bool:
        """Whether the digest of the body was signed."""
        return bool(self.content)

    @property
    def bodyless(self) -> bool:
        """Never known: a body may come without having been signed."""
        return False

    def verify(
        self, secret: str | None, *, method: str, target: str, now: datetime, window_s: float
    ) -> None:
        """Believe the claim or refuse it; arguments as for ``signature.Claim.verify``.

        Raises:
            Unauthenticated: The time or the signature does not fit.
        """
        check_time(DATE, int(self.date), now=now, window_s=window_s)
        if not is_method(method) or not is_target(target):
            raise Unauthenticated(
                "the request line cannot be signed", allowed="an upper-case method and a raw path"
            )
        text = string_to_sign(method, resource(target), self)
        # An unknown key is checked against a random secret, and so takes as long as a wrong
        # signature.
        right = hmac.compare_digest(_hmac(secret or secrets.token_hex(), text), self.signature)
        if secret is None or not right:
            raise Unauthenticated(
                WRONG, field=AUTHORIZATION, hint="check the access key and its secret"
            )

    def check_body(self, digest: str) -> None:
        """Compare the MD5 (lower-case hex) of the body that came with the one that was signed, if
        one was.

        Raises:
            Unauthenticated: They differ.
        """
        if self.content and not hmac.compare_digest(self.content, digest):
            raise Unauthenticated(
                f"the body does not have the MD5 that was signed; it has {digest}",
                field=CONTENT,
                value=self.content,
            )

    def once_token(self, method: str, target: str) -> str:
        """The text that must never be seen twice in a mutation: the key and its signature.

        Method, path and sub-resources are signed. Without a nonce, two calls that differ in nothing
        that is signed must be a second apart.
        """
        del method, target
        return f"{SCHEME}/{hashlib.sha256(f'{self.key}:{self.signature}'.encode()).hexdigest()}"


def sign(
    method: str,
    target: str,
    *,
    key: str,
    secret: str,
    when: str,
    headers: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The headers that sign a request, for tests and tools: ours sign with ``signature.sign``.

    Args:
        method: Such as ``PUT``.
        target: Path and query as they will stand on the request line.
        key: The access key.
        secret: Its secret.
        when: The client's time, as in ``Date``.
        headers: What else is sent and signed; returned with the rest.
    """
    sent = {DATE: when, **(headers or {})}
    claim = Claim.from_headers([*sent.items(), (AUTHORIZATION, f"{SCHEME} {key}:{'A' * 27}=")])
    text = string_to_sign(method, resource(target), claim)
    return {**sent, AUTHORIZATION: f"{SCHEME} {key}:{_hmac(secret, text)}"}


def string_to_sign(method: str, resource: str, claim: Claim) -> str:
    """The text under the HMAC."""
    own = "".join(f"{name}:{value}\n" for name, value in sorted(claim.own.items()))
    return f"{method}\n{claim.content}\n{claim.content_type}\n{claim.when}\n{own}{resource}"


def resource(target: str) -> str:
    """The decoded path and the sub-resources of a request target, as they are signed.

    Raises:
        Unauthenticated: The path is no UTF-8, or has a '?' in it, which would read as a
            sub-resource.
    """
    raw_path, query = split_target(target)
    path = decode_path(raw_path)
    # As its client does: of a value with a '=' in it, only what stands before is signed.
    pairs = [pair.split("=") for pair in sorted(query.split("&"))]
    signed = ["=".join(pair[:2]) for pair in pairs if pair[0] in SUBRESOURCES]
    return f"{path}?{'&'.join(signed)}" if signed else path


def decode_path(raw_path: str) -> str:
    """A raw path as it is signed.

    Raises:
        Unauthenticated: It cannot be; see ``resource``.
    """
    try:
        path = unquote(raw_path, errors="strict")
    except UnicodeDecodeError:
        path = "?"
    if "?" in path:
        raise Unauthenticated(
            "the path cannot be signed", field="path", allowed="UTF-8 without '?'"
        )
    return path


def _read(headers: Headers) -> dict[str, str]:
    """The headers that count, by their names in lower case."""
    found: dict[str, str] = {}
    for sent_name, sent in headers:
        name, value = sent_name.lower(), sent.strip(" \t")
        if name not in _FORMS and name != TYPE.lower() and not name.startswith(PREFIX):
            continue
        if name in found:
            raise _invalid_signature(name, "given twice", "once")
        pattern, words = _FORMS.get(name, _PLAIN)
        if not pattern.fullmatch(value):
            raise _invalid_signature(name, "malformed", words)
        found[name] = value
    return found


def _seconds(when: str) -> int:
    try:
        return int(parsedate_to_datetime(when).timestamp())
    except ValueError:
        raise _invalid_signature(DATE, "malformed", _WHEN[1]) from None


def _invalid_signature(name: str, what: str, allowed: str) -> Unauthenticated:
    """No message repeats a value: one of them is a signature."""
    return Unauthenticated(
        f"the header {name} is {what}; allowed is {allowed}", field=name, allowed=allowed
    )


def _hmac(secret: str, text: str) -> str:
    return base64.b64encode(
        hmac.new(secret.encode(), text.encode(), hashlib.sha1).digest()
    ).decode()
