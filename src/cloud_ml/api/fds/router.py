"""Sends requests of the storage protocol to their room, and everybody else on."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from cloud_ml.api import errors
from cloud_ml.api.fds.operations import answer
from cloud_ml.auth import fds

_METHODS = ("HEAD", "GET", "PUT", "POST", "DELETE")
_SIGNED = fds.SCHEME.encode() + b" "


class FdsRouter:
    """Plain ASGI, since it is on the way of every request."""

    def __init__(self, app: ASGIApp) -> None:
        self._others = app
        self._room = ExceptionMiddleware(_answer_request)
        errors.install(self._room)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        inside = scope["type"] == "http" and _is_signed(scope["headers"])
        if inside:
            scope["cloud_ml.room"] = "fds"
        await (self._room if inside else self._others)(scope, receive, send)


def _is_signed(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    for name, value in headers:  # noqa: SIM110 - a generator is a call for each header
        if name == b"authorization" and value.startswith(_SIGNED):
            return True
    return False


async def _answer_request(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer one request, whatever its path is.

    A router would not take paths with a line break, and would redirect some of them before the
    signature is judged.
    """
    if scope["method"] not in _METHODS:
        raise HTTPException(405, headers={"Allow": ", ".join(_METHODS)})
    response = await answer(Request(scope, receive, send))
    await response(scope, receive, send)
