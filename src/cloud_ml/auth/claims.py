"""The door for both schemes: whom a request claims to come from, and how fresh it must be.

A server reads the claim, looks up the key's secret, then calls ``verify``, after the body
``check_body``, and writes ``once_token`` down in the transaction of a mutation::

    claim = claims.read(headers)
    window = claims.window_s(claim, mutation=True, normal_s=300, bodyless_legacy_s=10)
    claim.verify(secret_of(claim.key), method=method, target=raw_target, now=now, window_s=window)

Safe methods are held to the window only, so that reads work on a read-only disk and on any server.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Protocol

from cloud_ml.auth import bearer, legacy, signature
from cloud_ml.auth.headers import Headers
from cloud_ml.errors import Unauthenticated

_ALLOWED = f"{signature.SCHEME}, {bearer.SCHEME} (an access token) or {legacy.SCHEME}"
HOW_TO_AUTHENTICATE = (
    "Create a token with cloudml token create --scope SCOPE, and send the header "
    "Authorization: Bearer TOKEN"
)
"""The hint where a request has no credentials."""
_LAST_MOMENT = 253_370_764_800
"""The beginning of the year 9999, in seconds."""


class Claim(Protocol):
    """What a signed request says of itself, in either scheme."""

    @property
    def scheme(self) -> str:
        """``signature.SCHEME`` or ``legacy.SCHEME``."""

    @property
    def key(self) -> str:
        """The access key."""

    @property
    def date(self) -> str:
        """The client's time: seconds since 1970, digits."""

    @property
    def body_hash(self) -> str:
        """The algorithm, as ``hashlib.new`` calls it, of the digest that ``check_body`` takes."""

    @property
    def signs_body(self) -> bool:
        """Whether ``check_body`` compares anything."""

    @property
    def bodyless(self) -> bool:
        """Whether the request was signed for an empty body."""

    def verify(
        self, secret: str | None, *, method: str, target: str, now: datetime, window_s: float
    ) -> None:
        """Raise ``Unauthenticated`` unless time and signature fit; see ``signature.Claim``."""

    def check_body(self, digest: str) -> None:
        """Raise ``Unauthenticated`` unless the body that came is the one that was signed."""

    def once_token(self, method: str, target: str) -> str:
        """The text of the mutation's ``Once``."""


def read(headers: Headers) -> Claim:
    """The claim in a request's headers, whichever scheme they follow.

    Raises:
        Unauthenticated: They follow none, or not to the letter.
    """
    pairs = list(headers)
    sent = next((value for name, value in pairs if name.lower() == "authorization"), None)
    if sent is None:
        raise Unauthenticated(
            "the request is not signed",
            field="Authorization",
            allowed=_ALLOWED,
            hint=HOW_TO_AUTHENTICATE,
        )
    if sent.startswith(legacy.SCHEME + " "):
        return legacy.Claim.from_headers(pairs)
    if sent.startswith(signature.SCHEME + " "):
        return signature.Claim.from_headers(pairs)
    raise Unauthenticated(
        "the header Authorization names no scheme of ours",
        field="Authorization",
        allowed=_ALLOWED,
    )


def window_s(claim: Claim, *, mutation: bool, normal_s: float, bodyless_legacy_s: float) -> float:
    """How far the request's time may be from the server's, in seconds.

    Args:
        claim: Who asks.
        mutation: Whether the request changes anything: every method but GET and HEAD, and those
            GETs of the original API that start, stop or save.
        normal_s: The window of everything else.
        bodyless_legacy_s: The window of a mutation in the original scheme without a body. Its
            signature is as good for another method on the path, so it must be fresh.
    """
    if mutation and claim.scheme == legacy.SCHEME and claim.bodyless:
        return min(normal_s, bodyless_legacy_s)
    return normal_s


def forget_at(claim: Claim, normal_s: float) -> datetime:
    """When the claim's ``once_token`` may be dropped: its request is out of every window then."""
    moment = min(int(claim.date), _LAST_MOMENT)  # a link may name any end
    return datetime.fromtimestamp(moment, tz=UTC) + timedelta(seconds=normal_s + 1)
