"""Around every request: an id for it, the original client's odd paths, and no fault without an answer."""

from __future__ import annotations

import logging
import re
import secrets

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cloud_ml.api import errors

logger = logging.getLogger(__name__)

_SLASHES = re.compile(r"/{2,}")


class Envelope:
    """Plain ASGI, since it is on the way of every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = scope["request_id"] = secrets.token_hex(8)
        extra = [(b"x-request-id", request_id.encode()), (b"x-content-type-options", b"nosniff")]
        began = False

        async def send_with_id(message: Message) -> None:
            nonlocal began
            if message["type"] == "http.response.start":
                began = True
                message["headers"] = [*message.get("headers", ()), *extra]
            await send(message)

        scope["path"] = routed_path(scope["path"])
        try:
            await self._app(scope, receive, send_with_id)
        except ClientDisconnect:
            logger.debug("request %s: the client is gone", request_id)
        except Exception:
            logger.exception("request %s failed: %s %s", request_id, scope["method"], scope["path"])
            if began:  # too late for a status: the broken stream tells the client
                raise
            await errors.unexpected(request_id)(scope, receive, send_with_id)


def routed_path(path: str) -> str:
    """The path that routes are looked up by. The raw path, which is what was signed, stays as it is.

    Clients of the original API join endpoint and path carelessly, so there ``//`` means ``/``.
    """
    if path.lstrip("/").startswith("cloud_ml/"):
        return _SLASHES.sub("/", path).rstrip("/")
    return path
