"""Secrets: values that jobs get, and that no call gives back."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, TypeVar

from cloud_ml.aio.transport import AsyncTransport
from cloud_ml.models.secrets.secret import Secret, SecretPage
from cloud_ml.sdk.failures import AlreadyCarriedOut
from cloud_ml.sdk.messages import json_request, segment

T = TypeVar("T")
_PATH = "/api/v1/secrets"


class AsyncSecrets:
    """The secrets of the caller's organisation.

    Every method raises ``Forbidden`` for what the caller's role may not, ``NotFound`` for what is
    absent, and ``CloudMlError`` as ``AsyncTransport.json`` does.
    """

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(self, name: str, value: bytes | str, *, replace: bool = False) -> Secret:
        """Store a secret; with ``replace`` an existing one gets the new value.

        Raises:
            AlreadyExists: The name is taken.
            TooLarge: The value is larger than the server takes.
        """
        data = value.encode() if isinstance(value, str) else value
        document = {
            "name": name,
            "data": base64.b64encode(data).decode("ascii"),
            "replace": replace,
        }
        try:
            return await self._ask(Secret, "POST", "", document)
        except AlreadyCarriedOut:
            return await self.describe(name)

    async def list(self) -> list[Secret]:
        """Secrets by name, without values."""
        return (await self._ask(SecretPage, "GET")).items

    async def describe(self, name: str) -> Secret:
        """One secret, without its value."""
        return await self._ask(Secret, "GET", f"/{segment(name)}")

    async def delete(self, name: str) -> Secret:
        """Remove a secret. What runs keeps its copy; later attempts that need it fail."""
        return await self._ask(Secret, "DELETE", f"/{segment(name)}")

    async def _ask(
        self, kind: type[T], method: str, path: str = "", document: Mapping[str, Any] | None = None
    ) -> T:
        request = json_request(method, _PATH + path, document, once=method != "GET")
        return await self._transport.ask(kind, request)
