"""Pages of other origins: which may read answers of ``/api/v1``
(https://fetch.spec.whatwg.org/#http-cors-protocol).

Origins are compared exactly. Credentials of the browser (cookies, certificates) are never allowed:
a page sends a token in the header ``Authorization``, which it must have been given.
"""

from __future__ import annotations

from functools import lru_cache

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_PATH = "/api/v1/"
_EXPOSED = b"cache-control, cloudml-log-offset, content-range, etag, retry-after, www-authenticate, x-request-id"
_PREFLIGHT = (
    (b"access-control-allow-methods", b"GET, HEAD, POST, PUT, PATCH, DELETE"),
    (
        b"access-control-allow-headers",
        b"authorization, content-type, idempotency-key, if-match, if-none-match, if-range, last-event-id, range",
    ),
    (b"access-control-max-age", b"600"),
    (b"content-length", b"0"),
)


class Cors:
    """Plain ASGI, since it is on the way of every request. Without origins it does nothing."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        allowed = (
            allowed_origins(scope["app"].state.platform.settings.cors_origins)
            if scope["type"] == "http"
            else ()
        )
        if not allowed or not scope["path"].startswith(_PATH):
            await self._app(scope, receive, send)
            return
        sent = [value for name, value in scope["headers"] if name == b"origin"]
        # For other origins, too: a cache must not give their answer to a page that is allowed.
        fields = [(b"vary", b"Origin")]
        known = len(sent) == 1 and sent[0] in allowed
        if known:
            fields += [
                (b"access-control-allow-origin", sent[0]),
                (b"access-control-expose-headers", _EXPOSED),
            ]
        # A browser asks this without the token, so no route could tell who asks.
        if known and _is_preflight(scope):
            await send(
                {
                    "type": "http.response.start",
                    "status": 204,
                    "headers": [*fields[:2], *_PREFLIGHT],
                }
            )
            await send({"type": "http.response.body", "body": b""})
            return

        async def send_with_fields(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *fields]
            await send(message)

        await self._app(scope, receive, send_with_fields)


@lru_cache(8)
def allowed_origins(text: str) -> frozenset[bytes]:
    """The origins of the setting ``api.cors_origins``."""
    return frozenset(
        each.strip().encode("latin-1", "replace") for each in text.split(",") if each.strip()
    )


def _is_preflight(scope: Scope) -> bool:
    return scope["method"] == "OPTIONS" and any(
        name == b"access-control-request-method" for name, _ in scope["headers"]
    )
