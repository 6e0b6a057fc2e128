"""Sends requests of the storage protocol to their room, and everybody else on."""

from __future__ import annotations

from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from cloud_ml.api import errors
from cloud_ml.api.fds.operations import answer
from cloud_ml.auth import fds

_SIGNED = fds.SCHEME.encode() + b" "
_METHODS = ["HEAD", "GET", "PUT", "POST", "DELETE"]


class Door:
    """Plain ASGI, since it is on the way of every request."""

    def __init__(self, app: ASGIApp) -> None:
        self._others = app
        self._room = ExceptionMiddleware(Router([Route("/{path:path}", answer, methods=_METHODS)]))
        errors.install(self._room)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        inside = scope["type"] == "http" and any(
            name == b"authorization" and value.startswith(_SIGNED) for name, value in scope["headers"]
        )
        if inside:
            scope["cloud_ml.room"] = "fds"
        await (self._room if inside else self._others)(scope, receive, send)
