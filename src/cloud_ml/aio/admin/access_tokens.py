"""Access tokens, for programs that have no SDK.

::

    tokens = AsyncCloudMlClient().tokens
    made = await tokens.create(["jobs:read", "models:predict:linear"], expires_in_s=30 * 86400)
    print(made.token)     # it is told here and nowhere else
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

from cloud_ml.aio.transport import AsyncTransport
from cloud_ml.models.admin.access_tokens import AccessToken, AccessTokenPage, CreatedAccessToken
from cloud_ml.sdk.messages import Request, json_request, segment

T = TypeVar("T")
_PATH = "/api/v1/tokens"


class AsyncAccessTokens:
    """The caller's tokens, and for those who manage an organisation all of its tokens.

    Every method raises ``Forbidden`` for what the caller may not, ``NotFound`` for what is absent
    (or somebody else's), ``InvalidRequest`` for a wrong value, and ``CloudMlError`` as
    ``AsyncTransport.json`` does.
    """

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self, scopes: Sequence[str], *, expires_in_s: int, note: str = ""
    ) -> CreatedAccessToken:
        """Create a token. Its text is in the answer and nowhere else. It is repeated safely if an
        answer is lost.

        Args:
            scopes: What it may do, such as ``jobs:read`` or ``models:predict:linear``.
            expires_in_s: How many seconds it works.
            note: What it is for.
        """
        document = {"scopes": list(scopes), "expires_in_s": expires_in_s, "note": note}
        request = json_request("POST", _PATH, document, idempotency_key=os.urandom(16).hex())
        return await self._transport.ask(CreatedAccessToken, request)

    async def list_tokens(
        self, *, user: str | None = None, org: str | None = None
    ) -> list[AccessToken]:
        """Tokens, oldest first: the organisation's for who manages it, else the caller's own."""
        request = Request("GET", _PATH, query={"org": org, "user": user})
        return (await self._transport.ask(AccessTokenPage, request)).items

    async def describe(self, token: str) -> AccessToken:
        """One token, by its id."""
        return await self._transport.ask(AccessToken, Request("GET", f"{_PATH}/{segment(token)}"))

    async def revoke(self, token: str) -> AccessToken:
        """End a token, and the tokens that it created."""
        return await self._transport.ask(
            AccessToken, Request("DELETE", f"{_PATH}/{segment(token)}")
        )
