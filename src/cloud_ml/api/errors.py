"""From an error's code to a status: one table and one document for both surfaces."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from cloud_ml.api import auditing
from cloud_ml.api.mlflow import errors as mlflow_errors
from cloud_ml.auth import bearer
from cloud_ml.auth.signature import SCHEME
from cloud_ml.errors import (
    AlreadyExists,
    CloudMlError,
    Conflict,
    Damaged,
    Forbidden,
    InvalidRequest,
    NotFound,
    OutOfSpace,
    PreconditionFailed,
    RequestError,
    StartAgain,
    TooLarge,
    TooMany,
    TransportError,
    TryAgain,
    Unauthenticated,
)
from cloud_ml.models import common
from cloud_ml.observability import requests
from cloud_ml.usecases.access.tokens import MissingScope

logger = logging.getLogger(__name__)

STATUS: Mapping[type[CloudMlError], int] = {
    InvalidRequest: 400,
    RequestError: 400,
    Unauthenticated: 401,
    Forbidden: 403,
    NotFound: 404,
    AlreadyExists: 409,
    Conflict: 409,
    StartAgain: 410,
    PreconditionFailed: 412,
    TooLarge: 413,
    Damaged: 500,
    CloudMlError: 500,
    TransportError: 502,
    TooMany: 429,
    TryAgain: 503,
    OutOfSpace: 507,
}
"""A class that is not listed has the status of the nearest base that is."""

_RETRY_AFTER_S: Mapping[int, int] = {429: 5, 503: 1, 507: 10}
_WORDS: Mapping[int, str] = {
    400: "invalid", 404: "not_found", 405: "method_not_allowed", 408: "timeout", 413: "too_large",
    414: "too_large", 415: "unsupported_media_type", 431: "too_large",
}  # fmt: skip
_METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
_LONGEST_VALUE = 200
_BOUNDS: Mapping[str, tuple[str, str]] = {
    "greater_than": ("more than {}", "gt"),
    "greater_than_equal": ("{} or more", "ge"),
    "less_than": ("less than {}", "lt"),
    "less_than_equal": ("{} or less", "le"),
    "string_too_short": ("a text of {} or more characters", "min_length"),
    "string_too_long": ("a text of {} or fewer characters", "max_length"),
}
"""By the type of a fault of the framework: words, and the bound that stands in them."""
_TYPES: Mapping[str, str] = {
    "int": "a whole number",
    "bool": "true or false",
    "float": "a number",
    "datetime": "a time such as 2026-01-31T12:00:00Z",
}


def status_of(error: CloudMlError) -> int:
    """The status that an error is answered with."""
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def answer(error: CloudMlError, path: str = "") -> Response:
    """The response for one of our errors, to who has asked at a path."""
    status = status_of(error)
    headers = {}
    if status in _RETRY_AFTER_S:
        headers["Retry-After"] = str(_RETRY_AFTER_S[status])
    # RFC 9110, section 15.5.2: a 401 names the schemes that would do.
    if status == 401:
        headers["WWW-Authenticate"] = f'{SCHEME}, {bearer.SCHEME} realm="cloudml"'
    if isinstance(error, MissingScope):
        # RFC 6750, section 3.1. The answer to a HEAD has no other place for it.
        headers["WWW-Authenticate"] = (
            f'{bearer.SCHEME} realm="cloudml", error="insufficient_scope", scope="{error.allowed}"'
        )
    return refusal(status, _shorten_quotes(error.document()), headers, path)


def refusal(
    status: int,
    document: Mapping[str, Any],
    headers: Mapping[str, str] | None = None,
    path: str = "",
) -> Response:
    """An error document in one line; plain ASCII, since it may quote anything."""
    document = mlflow_errors.document(path, status, document)
    if (request_id := requests.current.get()) is not None:
        document = {**document, "request_id": request_id}
    content = json.dumps(document, separators=(",", ":"), default=str).encode()
    return Response(content, status, headers, media_type="application/json")


def internal_error(request_id: str, path: str = "") -> Response:
    """The answer for a fault of ours. What happened stands in the server's log under the
    request's id.
    """
    message = f"the server made a mistake; its log says more under request {request_id}"
    return refusal(
        500,
        {"error": True, "code": CloudMlError.code, "message": message, "request_id": request_id},
        path=path,
    )


async def answer_to(request: Request, error: CloudMlError) -> Response:
    """The response for an error of ours that a request met; the logs are told what concerns
    them.
    """
    if status_of(error) in (500, 502):
        logger.error("%s: %s", type(error).__name__, error, extra={"path": request.url.path})
    elif error.public_message is not None:  # the answer leaves out what the operator needs
        logger.warning("%s: %s", type(error).__name__, error, extra={"path": request.url.path})
    if auditing.entry_of(request) is not None:
        platform = request.app.state.platform
        now = platform.clock()
        await auditing.note_refusal(request, error, platform.store, platform.offload, now)
    return answer(error, request.scope["path"])


def install(app: Starlette | ExceptionMiddleware) -> None:
    """Answer every error of the app by this module."""

    async def ours(request: Request, error: Exception) -> Response:
        assert isinstance(error, CloudMlError)
        return await answer_to(request, error)

    async def of_the_framework(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _http(request, error)

    async def of_parameters(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return answer(_parameter(error), request.scope["path"])

    app.add_exception_handler(CloudMlError, ours)
    app.add_exception_handler(HTTPException, of_the_framework)
    app.add_exception_handler(RequestValidationError, of_parameters)


def _http(request: Request, error: HTTPException) -> Response:
    headers = dict(error.headers or {})
    document = {
        "error": True,
        "code": _WORDS.get(error.status_code, "bad_request"),
        "message": str(error.detail),
    }
    if error.status_code == 404:
        document["message"] = f"there is nothing at {request.url.path[:_LONGEST_VALUE]}"
    if error.status_code == 405:
        document["message"] = (
            f"{request.method} is not possible at {request.url.path[:_LONGEST_VALUE]}"
        )
        if "app" in request.scope:
            headers["Allow"] = _methods(request)
        document["allowed"] = headers.get("Allow", headers.get("allow", ""))
    return refusal(error.status_code, document, headers, request.scope["path"])


def _methods(request: Request) -> str:
    """The methods that are possible at the path of a request, of all its routes together. Who asks
    needs no key, so only routes of this path are asked about each method.
    """
    routes = request.app.routes
    here = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    return ", ".join(
        method
        for method in _METHODS
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL for route in here
        )
    )


def _parameter(error: RequestValidationError) -> InvalidRequest:
    """The first parameter that is wrong, in the words of our own refusals."""
    fault = error.errors()[0]
    field = str(fault["loc"][-1])
    value = fault.get("input")
    shown = value if isinstance(value, (str, int, float)) else None
    return common.refuse(field, shown, _allowed(fault))


def _allowed(fault: Mapping[str, Any]) -> str:
    """What a parameter may be, in plain words instead of those of the framework."""
    kind, bounds = str(fault["type"]), fault.get("ctx", {})
    if kind in _BOUNDS:
        words, name = _BOUNDS[kind]
        return words.format(bounds.get(name))
    if kind.startswith(("int_", "bool_", "float_", "datetime_")):
        return _TYPES[kind.partition("_")[0]]
    return str(fault["msg"]).removeprefix("Input should be ").partition(",")[0]


def _shorten_quotes(document: dict[str, Any]) -> dict[str, Any]:
    """The document with what it quotes cut short: an answer never repeats a megabyte."""
    for name, text in document.items():
        if isinstance(text, str) and name != "hint" and len(text) > 2000:
            document[name] = text[:2000] + "…"
    value = document.get("value")
    if value is not None and len(shown := str(value)) > _LONGEST_VALUE:
        document["value"] = shown[:_LONGEST_VALUE] + "…"
    return document
