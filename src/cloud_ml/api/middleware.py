"""Around every request: an id, the original client's odd paths, a line in the log, no fault
without an answer.
"""

from __future__ import annotations

import logging
import re
import time
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cloud_ml.api import errors
from cloud_ml.observability import requests
from cloud_ml.observability.metrics import Metrics

CALLER = "cloud_ml.caller"
"""Where the scope of a request says who was believed to make it."""
STREAM = "cloud_ml.stream"
"""Set in the scope of a request whose answer is a stream: its length says nothing of the server."""

logger = logging.getLogger(__name__)
access = logging.getLogger("cloud_ml.access")

_SLASHES = re.compile(r"/{2,}")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
_QUIET = frozenset({"/healthz", "/readyz", "/metrics"})
"""Asked all day by machines: a line only when something is wrong."""


class Envelope:
    """Plain ASGI, since it is on the way of every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = requests.choose_id(_find_request_id(scope))
        scope["request_id"] = request_id
        requests.current.set(request_id)
        extra = [(b"x-request-id", request_id.encode()), (b"x-content-type-options", b"nosniff")]
        began, status = time.perf_counter(), 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *extra]
            await send(message)

        scope["path"] = routed_path(scope["path"])
        platform = scope["app"].state.platform
        metrics: Metrics = platform.metrics
        metrics.open_requests.add()
        try:
            await self._app(scope, receive, send_with_id)
        except ClientDisconnect:
            status = status or 499  # as nginx has it: nobody is there to be answered
        except Exception:
            logger.exception("request %s failed: %s %s", request_id, scope["method"], scope["path"])
            if status:  # too late for a status: the broken stream tells the client
                raise
            await errors.internal_error(request_id, scope["path"])(scope, receive, send_with_id)
        finally:
            metrics.open_requests.add(amount=-1)
            if (caller := scope.get(CALLER)) is not None:
                platform.under_way[caller.org] -= 1
                if not platform.under_way[caller.org]:
                    del platform.under_way[caller.org]
            _note(metrics, scope, status or 499, time.perf_counter() - began)


def routed_path(path: str) -> str:
    """The path that routes are looked up by. The raw path, which is what was signed, stays as it
    is.

    Clients of the original API join endpoint and path carelessly, so there ``//`` means ``/``.
    """
    if path.lstrip("/").startswith("cloud_ml/"):
        return _SLASHES.sub("/", path).rstrip("/")
    return path


def _find_request_id(scope: Scope) -> str | None:
    return next(
        (value.decode("latin-1") for name, value in scope["headers"] if name == b"x-request-id"),
        None,
    )


def _route(scope: Scope) -> str:
    """The pattern of the route, never the path: that may name what belongs to somebody."""
    return getattr(scope.get("route"), "path", None) or scope.get("cloud_ml.room") or "none"


def _note(metrics: Metrics, scope: Scope, status: int, seconds: float) -> None:
    method = scope["method"] if scope["method"] in _METHODS else "other"
    route = _route(scope)
    metrics.requests.add(method, route, str(status))
    if not scope.get(STREAM):
        metrics.latency.observe(seconds, method, route)
    if route in _QUIET and status < 500:
        return
    facts: dict[str, Any] = {
        "method": method,
        "route": route,
        "status": status,
        "ms": round(seconds * 1000, 1),
    }
    if (caller := scope.get(CALLER)) is not None:
        facts |= {"org": caller.org, "user": caller.user}
    access.info("%s %s %d", method, route, status, extra=facts)
