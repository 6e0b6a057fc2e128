"""Many small objects in one body: for each a line of JSON, and then its bytes.

The line says ``key``, ``size`` (bytes) and ``sha256`` (lower-case hex); where a server answers,
also ``etag``, or ``error`` in place of the bytes. Both sides write and read this form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cloud_ml.errors import InvalidRequest
from cloud_ml.models.common import refuse

MEDIA_TYPE = "application/vnd.cloudml.objects"
LINE_BYTES = 16_384
"""Longest line: a key has at most 1024 bytes, which JSON may write as six times as many."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
_DIGITS = 15


@dataclass(frozen=True, slots=True)
class Entry:
    """What the line says of an object. ``error`` is a refusal, as answers have it; such an entry
    has no bytes.
    """

    key: str
    size: int = 0
    sha256: str = ""
    etag: str = ""
    error: Mapping[str, Any] | None = None

    def line(self) -> bytes:
        """The line, with its end."""
        document: dict[str, Any] = {"key": self.key}
        document |= (
            {"error": dict(self.error)}
            if self.error is not None
            else {"size": self.size, "sha256": self.sha256}
        )
        if self.etag:
            document["etag"] = self.etag
        return json.dumps(document, separators=(",", ":")).encode() + b"\n"


class EntryReader:
    """Reads such a body from chunks, however it is cut, in linear time. Holds one line, or
    nothing.
    """

    def __init__(self) -> None:
        self._line = bytearray()
        self._left = 0

    def feed(self, chunk: bytes) -> Iterator[Entry | bytes]:
        """Each entry, then pieces of its bytes. Iterate to the end before the next call.

        Raises:
            InvalidRequest: This is no such body.
        """
        position, end = 0, len(chunk)
        while position < end:
            if self._left:
                piece = chunk[position : position + self._left]
                position += len(piece)
                self._left -= len(piece)
                yield piece
                continue
            stop = chunk.find(b"\n", position)
            self._line += chunk[position : end if stop < 0 else stop]
            if len(self._line) > LINE_BYTES:
                raise refuse(
                    "body", f"a line of more than {LINE_BYTES} bytes", f"at most {LINE_BYTES} bytes"
                )
            if stop < 0:
                return
            position = stop + 1
            entry = read_entry(bytes(self._line))
            self._line.clear()
            self._left = 0 if entry.error is not None else entry.size
            yield entry

    def end(self) -> None:
        """The body is over.

        Raises:
            InvalidRequest: It was cut off.
        """
        if self._left or self._line:
            raise InvalidRequest(
                "the body ends in the middle of an object", field="body", hint="send it again"
            )


def read_entry(line: bytes) -> Entry:
    """Read a line, without its end.

    Raises:
        InvalidRequest: It is none.
    """
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or not isinstance(document.get("key"), str):
        raise refuse(
            "body",
            _quote_line(line),
            'a line of JSON such as {"key": "a/b", "size": 3, "sha256": "…"}',
        )
    error = document.get("error")
    if isinstance(error, dict):
        return Entry(document["key"], error=error)
    size, sha256, etag = document.get("size"), document.get("sha256"), document.get("etag", "")
    if type(size) is not int or not 0 <= size < 10**_DIGITS:
        raise refuse("size", _quote_line(line), "a whole number of bytes")
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise refuse("sha256", _quote_line(line), "64 lower-case hex digits")
    return Entry(document["key"], size, sha256, etag if isinstance(etag, str) else "")


def _quote_line(line: bytes) -> str:
    return ascii(line[:80])
