"""Bearer tokens in requests: the form of an access token, and how strictly the header is read.

``cloudml_<id>_<secret>``: the id is public and finds the token's record, the secret is 43 letters
and digits drawn at random (256 bits). The server keeps a SHA-256 of the whole text: a random secret
of this length cannot be guessed from it, so a slow hash would only cost time.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string
from dataclasses import dataclass
from typing import ClassVar

from cloud_ml.auth import job_tokens
from cloud_ml.auth.headers import Headers
from cloud_ml.auth.job_tokens import JobToken
from cloud_ml.errors import Unauthenticated

SCHEME = "Bearer"
# Without those that look alike: l and 1, o and 0.
_ID_LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"
_SECRET_LETTERS = string.ascii_letters + string.digits
_TOKEN = re.compile(r"cloudml_(tk[a-z0-9]{14})_([A-Za-z0-9]{43})")
_CREDENTIALS = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +([A-Za-z0-9._~+/-]{1,512}=*)")
_SIGNATURE_HEADERS = ("x-cloudml-", "x-xiaomi-")
_NONCE_FORM = re.compile(r"[A-Za-z0-9_-]{16,64}")
_NONCE = "x-cloudml-nonce"
"""The one of them that a request with a token may have: all tries of one change have the same
nonce.
"""
_TEXT = re.compile(r"cloudml_(tk[a-z0-9]{14})_[A-Za-z0-9]{0,43}")
_ANYWHERE = re.compile(rb"cloudml_tk[a-z0-9]{14}_|cmt[12]\.|cmj1\.", re.IGNORECASE)
_NAMES = re.compile(rb"(?:^|&)(?:access_token|bearer_token|token|authorization)=", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class BearerToken:
    """An access token, read but not yet believed."""

    id: str
    digest: str


@dataclass(frozen=True, slots=True)
class Credentials:
    """Stands for a token where a signature's claim is looked at: a token says nothing about the
    body.

    ``nonce`` is empty if the caller sent none.
    """

    nonce: str = ""
    scheme: ClassVar[str] = SCHEME
    body_hash: ClassVar[str] = "sha256"
    signs_body: ClassVar[bool] = False

    def check_body(self, digest: str) -> None:
        """Accept any body."""


def new_token(token_id: str = "") -> tuple[BearerToken, str]:
    """A token with its text, drawn at random. With ``token_id``, a new text of that token."""
    token_id = token_id or "tk" + "".join(secrets.choice(_ID_LETTERS) for _ in range(14))
    secret = "".join(secrets.choice(_SECRET_LETTERS) for _ in range(43))
    text = f"cloudml_{token_id}_{secret}"
    return BearerToken(token_id, digest_of(text)), text


def digest_of(text: str) -> str:
    """What the server keeps of a token's text, in hex."""
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def same_digest(kept: str, sent: str) -> bool:
    """Compare two digests in constant time."""
    return hmac.compare_digest(kept, sent)


def is_sent(headers: Headers) -> bool:
    """Whether a request carries a bearer token in any header ``Authorization``."""
    for name, value in headers:  # noqa: SIM110 - a generator is a call for each header
        if name.lower() == "authorization" and value.lstrip()[:6].lower() == "bearer":
            return True
    return False


def read(headers: Headers) -> BearerToken:
    """The token of a request that carries one.

    Raises:
        Unauthenticated: The header is there twice, beside a signature, or does not hold an access
            token.
    """
    pairs = list(headers)
    sent = [value for name, value in pairs if name.lower() == "authorization"]
    if len(sent) != 1:
        raise _invalid_header("The header Authorization was given twice.")
    names = [name.lower() for name, _ in pairs]
    if any(name.startswith(_SIGNATURE_HEADERS) and name != _NONCE for name in names):
        raise _invalid_header(
            "The request has a bearer token and headers of a signature. Send one of the two."
        )
    found = _CREDENTIALS.fullmatch(sent[0])
    if found is None:
        raise _invalid_header("The header Authorization is malformed.")
    if found[1].startswith(("cmt1.", "cmt2.")):
        raise Unauthenticated(
            "This token is for calls of model services only; `cloudml models token` made it.",
            field="Authorization",
            allowed="an access token",
            hint=how_to_replace("jobs:read"),
        )
    if found[1].startswith(job_tokens.PREFIX):
        raise Unauthenticated(
            "This token is for the MLflow endpoint of its job only.",
            field="Authorization",
            allowed="an access token",
            hint="Use the address in MLFLOW_TRACKING_URI of the job.",
        )
    token = parse(found[1])
    if token is None:
        raise unknown_token()
    return token


def read_job(headers: Headers) -> JobToken:
    """The token of a job, which a request to the endpoint of jobs carries.

    Raises:
        Unauthenticated: It carries none, or another proof beside it.
    """
    pairs = list(headers)
    sent = [value for name, value in pairs if name.lower() == "authorization"]
    found = _CREDENTIALS.fullmatch(sent[0]) if len(sent) == 1 else None
    token = None if found is None else JobToken.read(found[1])
    if token is None or any(
        name.lower().startswith(_SIGNATURE_HEADERS) and name.lower() != _NONCE for name, _ in pairs
    ):
        raise Unauthenticated(
            "Only the token of a job is accepted here.",
            field="Authorization",
            allowed="Bearer and the token in MLFLOW_TRACKING_TOKEN",
        )
    return token


def read_nonce(headers: Headers) -> str:
    """The nonce of a change: the server carries out one request of a token with it. Empty if there
    is none.

    Raises:
        Unauthenticated: The header is there twice or malformed.
    """
    sent = [value for name, value in headers if name.lower() == _NONCE]
    if not sent:
        return ""
    if len(sent) > 1 or not _NONCE_FORM.fullmatch(sent[0]):
        raise Unauthenticated(
            "The header X-Cloudml-Nonce is malformed or was given twice.",
            field="X-Cloudml-Nonce",
            allowed="once, 16 to 64 letters, digits, '_' or '-'",
        )
    return sent[0]


def parse(text: str) -> BearerToken | None:
    """The access token that a text has the form of; ``None`` for what is none."""
    found = _TOKEN.fullmatch(text)
    return None if found is None else BearerToken(found[1], digest_of(text))


def without_secrets(text: str) -> str:
    """The text with each token in it cut down to its id and an ellipsis: for logs and messages.

    The ellipsis keeps what is left on both sides from becoming a token.
    """
    return _TEXT.sub("\\1\N{HORIZONTAL ELLIPSIS}", text) if "cloudml_" in text else text


def is_in_query(query: bytes) -> bool:
    """Whether a query seems to hold a token. Addresses are logged and kept, so that is refused."""
    return _ANYWHERE.search(query) is not None or _NAMES.search(query) is not None


def how_to_replace(scope: str = "SCOPE") -> str:
    """The hint where a token opens nothing, or not this: it does not create the next one either."""
    return (
        "For another one, unset CLOUDML_TOKEN if it is set, and run `cloudml token create "
        f"--scope {scope}` with an access key."
    )


def unknown_token() -> Unauthenticated:
    """The refusal of a text that is no token of this server."""
    return Unauthenticated(
        "The bearer token is not valid.",
        field="Authorization",
        allowed="an access token of this server",
        hint=f"Check that it was copied completely. {how_to_replace()}",
    )


def _invalid_header(message: str) -> Unauthenticated:
    return Unauthenticated(
        message, field="Authorization", allowed="one header: Bearer, a space and the token"
    )
