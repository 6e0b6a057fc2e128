"""From a request to what stands on the wire: target and headers, signed or with a token."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from cloud_ml import __version__
from cloud_ml.auth.signature import EMPTY_SHA256, NONCE, content_sha256, sign
from cloud_ml.errors import InvalidRequest
from cloud_ml.sdk.config import Credentials, TokenCredentials
from cloud_ml.sdk.endpoint import Endpoint
from cloud_ml.sdk.messages import FileBody, Request


def sign_request(
    endpoint: Endpoint,
    credentials: Credentials | TokenCredentials,
    request: Request,
    nonce: str | None = None,
) -> tuple[dict[str, str], str]:
    """Headers and target of one try. Every further try is signed again.

    The server carries out one request of a ``nonce``; without one, each try has its own. A token
    proves the caller without a signature.
    """
    path = endpoint.prefix + request.path
    query = urlencode(
        [pair for name, value in request.query.items() for pair in _query_pairs(name, value)]
    )
    target = f"{path}?{query}" if query else path
    headers = {
        "Accept": "application/json",
        "User-Agent": f"cloudml/{__version__}",
        **request.headers,
    }
    if request.idempotency_key is not None:
        headers["Idempotency-Key"] = request.idempotency_key
    if isinstance(request.body, FileBody):
        headers["Content-Length"] = str(request.body.size)
    if isinstance(credentials, TokenCredentials):
        proof = {"Authorization": f"Bearer {credentials.token}"}
        return {**headers, **proof, **({NONCE: nonce} if nonce else {})}, target
    signature = sign(
        request.method,
        target,
        key=credentials.access_key,
        secret=credentials.secret_key,
        now=datetime.now(UTC),
        content=_content_hash(request),
        nonce=nonce,
    )
    return {**headers, **signature}, target


def key_of(credentials: Credentials | TokenCredentials, what: str, instead: str) -> Credentials:
    """The key for something that only a key can sign.

    Raises:
        InvalidRequest: There is a token instead.
    """
    if isinstance(credentials, Credentials):
        return credentials
    raise InvalidRequest(
        f"{what} needs an access key; this client uses the access token {credentials.token_id}",
        field="token",
        allowed="an access key with its secret",
        hint=instead,
    )


def _content_hash(request: Request) -> str:
    if isinstance(request.body, FileBody):
        return request.body.sha256
    return content_sha256(request.body) if request.body else EMPTY_SHA256


def _query_pairs(name: str, value: Any) -> list[tuple[str, str]]:
    values = value if isinstance(value, (list, tuple)) else [value]
    return [
        (name, "true" if one is True else str(one))
        for one in values
        if one is not None and one is not False
    ]
