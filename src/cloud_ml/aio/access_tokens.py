"""Access tokens, for programs that have no SDK.

::

    tokens = AsyncCloudMlClient().tokens
    made = await tokens.create(["jobs:read", "models:predict:linear"], expires_in_s=30 * 86400)
    print(made.token)     # it is told here and nowhere else
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from cloud_ml.aio.transport import AsyncTransport
from cloud_ml.models import codec
from cloud_ml.models.access_tokens import AccessToken, AccessTokenPage, CreatedAccessToken
from cloud_ml.sdk.messages import Request, segment

T = TypeVar("T")
_PATH = "/api/v1/tokens"


class AsyncAccessTokens:
    """The caller's tokens, and for those who manage an organisation all of its tokens.

    Every method raises ``Forbidden`` for what the caller may not, ``NotFound`` for what is absent (or somebody
    else's), ``InvalidRequest`` for a wrong value, and ``CloudMlError`` as ``AsyncTransport.json`` does.
    """

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(self, scopes: Sequence[str], *, expires_in_s: int, note: str = "") -> CreatedAccessToken:
        """Create a token. Its text is in the answer and nowhere else.

        Args:
            scopes: What it may do, such as ``jobs:read`` or ``models:predict:linear``.
            expires_in_s: How many seconds it works.
            note: What it is for.
        """
        document = {"scopes": list(scopes), "expires_in_s": expires_in_s, "note": note}
        return await self._ask(CreatedAccessToken, "POST", _PATH, document)

    async def list_tokens(self, *, user: str | None = None, org: str | None = None) -> list[AccessToken]:
        """Tokens, oldest first: the organisation's for who manages it, else the caller's own."""
        return (await self._ask(AccessTokenPage, "GET", _PATH, query={"org": org, "user": user})).items

    async def describe(self, token: str) -> AccessToken:
        """One token, by its id."""
        return await self._ask(AccessToken, "GET", f"{_PATH}/{segment(token)}")

    async def revoke(self, token: str) -> AccessToken:
        """End a token, and the tokens that it created."""
        return await self._ask(AccessToken, "DELETE", f"{_PATH}/{segment(token)}")

    async def _ask(
        self,
        kind: type[T],
        method: str,
        path: str,
        document: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, Any] | None = None,
    ) -> T:
        request = Request(
            method,
            path,
            query=query or {},
            body=b"" if document is None else json.dumps(document, ensure_ascii=False).encode(),
            headers={} if document is None else {"Content-Type": "application/json"},
        )
        return codec.decode(kind, await self._transport.json(request), ignore_unknown=True)
