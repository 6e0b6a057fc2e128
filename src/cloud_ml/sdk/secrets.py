# Made of aio/secrets.py by tools/twins.py: change that one, then run `make format`.
"""Secrets: values that jobs get, and that no call gives back."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, TypeVar

from cloud_ml.models.secrets.secret import Secret, SecretPage
from cloud_ml.sdk.failures import AlreadyCarriedOut
from cloud_ml.sdk.messages import json_request, segment
from cloud_ml.sdk.transport import Transport

T = TypeVar("T")
_PATH = "/api/v1/secrets"


class Secrets:
    """The secrets of the caller's organisation.

    Every method raises ``Forbidden`` for what the caller's role may not, ``NotFound`` for what is
    absent, and ``CloudMlError`` as ``Transport.json`` does.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(self, name: str, value: bytes | str, *, replace: bool = False) -> Secret:
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
            return self._ask(Secret, "POST", "", document)
        except AlreadyCarriedOut:
            return self.describe(name)

    def list(self) -> list[Secret]:
        """Secrets by name, without values."""
        return self._ask(SecretPage, "GET").items

    def describe(self, name: str) -> Secret:
        """One secret, without its value."""
        return self._ask(Secret, "GET", f"/{segment(name)}")

    def delete(self, name: str) -> Secret:
        """Remove a secret. What runs keeps its copy; later attempts that need it fail."""
        return self._ask(Secret, "DELETE", f"/{segment(name)}")

    def _ask(
        self, kind: type[T], method: str, path: str = "", document: Mapping[str, Any] | None = None
    ) -> T:
        request = json_request(method, _PATH + path, document, once=method != "GET")
        return self._transport.ask(kind, request)
