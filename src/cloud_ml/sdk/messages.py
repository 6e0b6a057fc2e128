"""A request before it is signed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cloud_ml.errors import InvalidRequest
from cloud_ml.sdk.progress import Progress, report_progress
from cloud_ml.sdk.retries import SAFE_METHODS, is_repeatable
from cloud_ml.sdk.timeouts import QUIET_WATCH_S

READ_TIMEOUT_S = 60.0
BLOCK_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class FileBody:
    """The content of a file as a body: read when it is sent, again for each try.

    ``sha256`` (lower-case hex) and ``size`` (bytes) are what is signed; a file that changes in
    between is refused by the server. ``progress`` is told of every block that is sent. The body
    begins at byte ``start`` of the file.
    """

    path: Path
    size: int
    sha256: str
    progress: Progress | None = field(default=None, compare=False)
    start: int = 0

    def blocks(self) -> Iterator[bytes]:
        """Exactly ``size`` bytes of the file, from ``start`` on.

        Raises:
            InvalidRequest: It cannot be read, or has become shorter.
        """
        return report_progress(self._blocks(), self.progress, total=self.size)

    def _blocks(self) -> Iterator[bytes]:
        left = self.size
        try:
            with self.path.open("rb") as file:
                file.seek(self.start)
                while left and (block := file.read(min(left, BLOCK_BYTES))):
                    left -= len(block)
                    yield block
        except OSError as error:
            raise InvalidRequest(
                f"{self.path} cannot be read: {error.strerror}", field="file", value=str(self.path)
            ) from error
        if left:
            raise InvalidRequest(
                f"{self.path} changed while it was sent", field="file", value=str(self.path)
            )


@dataclass(frozen=True, slots=True)
class Request:
    """One request, not yet signed.

    Attributes:
        method: Upper case.
        path: Below the endpoint, percent-encoded; see ``segment``.
        query: Parameters; ``None`` and ``False`` are left out, ``True`` is ``true``, a list repeats
            its name.
        body: Bytes, or a file.
        headers: Further headers.
        idempotency_key: Lets the server carry it out once, however often it is sent.
        read_timeout_s: Longest silence of the server.
        same_twice: Carried out twice, it does no more than once, whatever its method and whatever
            others do meanwhile.
        once: The server carries out one try at most, although others follow: they all have one
            nonce. A later try raises ``CarriedOut`` then. So are ``PUT`` and ``DELETE`` that are
            not ``same_twice``.
    """

    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    body: bytes | FileBody = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    idempotency_key: str | None = None
    read_timeout_s: float = READ_TIMEOUT_S
    same_twice: bool = False
    once: bool = False

    @property
    def repeatable(self) -> bool:
        """Whether it may be sent again after it may have been carried out."""
        return (
            self.same_twice
            or self.single_nonce
            or is_repeatable(self.method, idempotency_key=self.idempotency_key)
        )

    @property
    def changes(self) -> bool:
        """Whether it matters to the caller that it was carried out, although no answer came."""
        return self.method not in SAFE_METHODS and not self.same_twice

    @property
    def single_nonce(self) -> bool:
        """Whether all tries have the same nonce, so that the server carries out one of them."""
        if self.same_twice or self.idempotency_key is not None:
            return False
        return self.once or self.method in ("PUT", "DELETE")


def json_request(
    method: str,
    path: str,
    document: Mapping[str, Any] | None = None,
    *,
    query: Mapping[str, Any] | None = None,
    idempotency_key: str | None = None,
    once: bool = False,
) -> Request:
    """A request whose body is a JSON document; see ``Request`` for the rest.

    Raises:
        InvalidRequest: A value is none of JSON.
    """
    body = (
        b""
        if document is None
        else json.dumps(
            document, ensure_ascii=False, separators=(",", ":"), default=_json_value
        ).encode()
    )
    headers = {} if document is None else {"Content-Type": "application/json"}
    return Request(
        method, path, query or {}, body, headers, idempotency_key=idempotency_key, once=once
    )


def _json_value(value: Any) -> Any:
    """A value that JSON does not know: a range, or numbers of numpy."""
    if isinstance(value, range):
        return list(value)
    if callable(plain := getattr(value, "tolist", None)):
        return plain()
    raise InvalidRequest(
        f"the value {str(value)[:80]} is of type {type(value).__name__}",
        value=value,
        allowed="numbers, texts, true, false, None, and lists or mappings of them",
    )


def watching(path: str, after: int | None) -> Request:
    """A request for server-sent events, from behind that of a number."""
    return Request(
        "GET",
        path,
        query={"after": after},
        headers={"Accept": "text/event-stream, application/json"},
        read_timeout_s=QUIET_WATCH_S,
    )


def head_of(host: str, request: Request, target: str, headers: Mapping[str, str]) -> bytes:
    """What stands before the body of a request on the wire."""
    # ``identity``, since bodies are written and hashed as they come: this client decodes none.
    lines = {"Host": host, "Accept-Encoding": "identity", **headers}
    size = request.body.size if isinstance(request.body, FileBody) else len(request.body)
    if size or isinstance(request.body, FileBody) or request.method in ("POST", "PUT", "PATCH"):
        # Also 0, where the method may have a body: RFC 9110, section 8.6, asks for it.
        lines["Content-Length"] = str(size)
    # A line break in a value would begin another header or another request (CWE-113).
    if any(mark in text for line in lines.items() for text in line for mark in "\r\n\0"):
        raise ValueError("a header has a line break in it")
    if any(mark in target for mark in "\r\n\0 "):
        raise ValueError("the target has a space or a line break in it")
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{request.method} {target} HTTP/1.1\r\n{head}\r\n".encode("latin-1")


def segment(text: str) -> str:
    """``text`` as one segment of a path: everything special is percent-encoded, '/' too."""
    return quote(text, safe="")


def key_path(key: str) -> str:
    """An object's key as the rest of a path: '/' stays."""
    return quote(key, safe="/")
