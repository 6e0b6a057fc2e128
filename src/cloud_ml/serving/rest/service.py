"""Which request of HTTP goes where."""

import logging
from collections.abc import Callable, Sequence
from typing import Protocol
from urllib.parse import unquote

from cloud_ml.net.http1.calls import HttpCall
from cloud_ml.net.http1.cors import PREFLIGHT, Cors
from cloud_ml.net.http1.heads import Head
from cloud_ml.serving.call_metrics import Refusals
from cloud_ml.serving.errors import BadRequest, ModelNotFound, ServingError

Answer = Callable[[HttpCall, bytes], None]
"""Answers a request with this body, now or later; what it raises of ``ServingError`` is told."""

ALLOW = b"Allow: GET, HEAD, POST\r\n"

log = logging.getLogger(__name__)


class HttpInterface(Protocol):
    """An interface that is served over HTTP."""

    def route(self, method: str, path: str, head: Head) -> Answer | None:
        """What answers this; None where it is not of this interface. ``method`` is GET or POST.

        Raises:
            ServingError: where the path is of this interface and means nothing.
        """


class HttpService:
    """Serves what the doors know, and counts what it refuses. ``cors`` are the origins whose
    pages may call.
    """

    def __init__(
        self, interfaces: Sequence[HttpInterface], refusals: Refusals, cors: Cors | None = None
    ) -> None:
        self._interfaces = interfaces
        self._cors = cors
        self._refusals = refusals

    def understand(self, head: Head) -> Answer:
        """See ``net.http1.service.Service``."""
        if self._cors is not None:
            head.answer_fields = self._cors.fields(head)
            if self._cors.is_preflight(head):
                return _preflight
        if head.target == "*":
            return _options_of_server
        if head.method not in ("GET", "HEAD", "POST"):
            return _not_allowed
        method, path = (
            "GET" if head.method == "HEAD" else head.method,
            head.target.partition("?")[0],
        )
        try:
            for door in self._interfaces:
                found = door.route(method, path, head)
                if found is not None:
                    return found
        except ServingError as error:
            return _Refused(error)
        return _not_found

    def serve(self, call: HttpCall, meaning: Answer, body: bytes) -> None:
        """See ``net.http1.service.Service``."""
        try:
            meaning(call, body)
        except ServingError as error:
            self._refusals.add("http", error.grpc)
            call.fail(error)
        except Exception:
            self._refusals.add("http", ServingError.grpc)
            log.exception("a request failed")
            call.fail(ServingError("the server failed; its log says why"))


class _Refused:
    def __init__(self, error: ServingError) -> None:
        self._error = error

    def __call__(self, _call: HttpCall, _body: bytes) -> None:
        raise self._error


def _not_found(call: HttpCall, _body: bytes) -> None:
    raise ModelNotFound(f"there is nothing at {call.head.target[:200]}")


def _options_of_server(call: HttpCall, _body: bytes) -> None:
    """``OPTIONS *``: RFC 9110, section 9.3.7."""
    call.reply(200, ALLOW, b"")


def _preflight(call: HttpCall, _body: bytes) -> None:
    call.reply(200, PREFLIGHT, b"")


def _not_allowed(call: HttpCall, _body: bytes) -> None:
    call.refuse(405, f"{call.head.method} is not a method of this server", ALLOW)


def decode_part(part: str) -> str:
    """A part of a path as it was meant.

    Raises:
        BadRequest: where it is not text.
    """
    try:
        return unquote(part, errors="strict")
    except UnicodeDecodeError as error:
        raise BadRequest(f"the path has {part[:100]!r}, which is not text") from error
