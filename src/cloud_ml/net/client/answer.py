"""The answer to one HTTP/1.1 request, as its client reads it: RFC 9112.

Without a socket. Where more bytes are needed a step yields, and is sent whether any came; so the
same text serves a client that blocks and one in an event loop.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from typing import Protocol, TypeVar

from cloud_ml.net.client.errors import BadStatusLine, CutShort, NotHttp

_LONGEST_LINE = 64 * 1024
_MOST_HEADERS = 200
_HEXADECIMAL = frozenset(b"0123456789abcdefABCDEF")
_MOST_DIGITS = 18
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_WITHOUT_BODY = frozenset({204, 304})
_BLOCK_BYTES = 64 * 1024

T = TypeVar("T")
Step = Generator[None, bool, T]
"""Yields where it needs more bytes than have arrived, and is sent ``False`` when none will come."""


class Arrived(Protocol):
    """What a connection has received and nobody has read."""

    arrived: bytearray

    def take(self, most: int) -> bytes:
        """Up to so many of the bytes, which are read thereby."""


class Answer:
    """An answer: its head after ``read_head``, then its body in blocks.

    Attributes:
        status: Such as 200.
        headers: Their names are in lower case; the last of a name counts.
        reusable: Whether the connection can serve another request: the body was read to its end.
    """

    def __init__(self, connection: Arrived) -> None:
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self.reusable = False
        self._connection = connection
        self._left: int | None = 0
        """Bytes of the body, or of the chunk; ``None``: up to the end of the connection."""
        self._chunked = False
        self._behind_chunk = False
        self._stays = False

    @property
    def over(self) -> bool:
        """Whether the body has been read to its end, or there is none."""
        return self._left == 0 and not self._chunked

    def read_head(self, method: str, *, last: bool = False) -> Step[None]:
        """Read the head of the answer to ``method``; with ``last`` the connection shall serve no
        other request.

        Raises:
            ConnectionResetError: The server closed the connection without an answer.
            NotHttp: This is no HTTP.
        """
        while True:
            version = yield from self._status_line()
            self.headers = yield from self._headers()
            if self.status >= 200:
                break
        connection_options = self.headers.get("connection", "").lower()
        self._stays = not last and version == "HTTP/1.1" and "close" not in connection_options
        length = self.headers.get("content-length")
        if method == "HEAD" or self.status in _WITHOUT_BODY:
            self._end()
        # RFC 9112, section 6.3: a transfer coding overrides the length.
        elif self.headers.get("transfer-encoding", "").lower() == "chunked":
            self._chunked = True
        elif length is None:
            self._left, self._stays = None, False
        elif not (length.isascii() and length.isdigit() and len(length) <= _MOST_DIGITS):
            raise NotHttp(f"the content length is {length[:40]!r}")
        else:
            self._left = int(length)
            if not self._left:
                self._end()

    def next_block(self) -> Step[int]:
        """How many bytes of the body may be received next; 0 at its end. What comes is told to
        ``received``.

        Raises:
            NotHttp: The size of a chunk is none, or the connection ended inside it.
        """
        if self._chunked and not self._left and not (yield from self._next_chunk()):
            return 0
        return _BLOCK_BYTES if self._left is None else min(self._left, _BLOCK_BYTES)

    def received(self, block: bytes) -> bytes:
        """Count a block of the body, and give it back; empty when the connection ended.

        Raises:
            CutShort: It ended before the body did.
        """
        if self._left is None:
            return block
        if not block:
            raise CutShort
        self._left -= len(block)
        if not self._left and not self._chunked:
            self._end()
        return block

    def _end(self) -> None:
        self._left, self._chunked = 0, False
        # Section 9.2: bytes that nobody asked for would be taken for the next answer.
        self.reusable = self._stays and not self._connection.arrived

    def _next_chunk(self) -> Step[bool]:
        if self._behind_chunk and (yield from self._line()):
            raise NotHttp("a chunk is longer than it said")
        size = (yield from self._line()).partition(b";")[0].strip(b" \t")
        if not size or not _HEXADECIMAL.issuperset(size):
            raise NotHttp(f"the size of a chunk is {size[:40]!r}")
        self._left = int(size, 16)
        self._behind_chunk = True
        if self._left:
            return True
        yield from self._headers()  # what follows the last chunk
        self._end()
        return False

    def _status_line(self) -> Step[str]:
        arrived = self._connection.arrived
        if not arrived and not (yield):
            raise ConnectionResetError("the server closed the connection without an answer")
        try:
            line = yield from self._line()
        except CutShort:
            raise BadStatusLine(bytes(arrived[:80]).decode("latin-1")) from None
        version, _, rest = line.decode("latin-1").partition(" ")
        status = rest[:3]
        if version not in ("HTTP/1.1", "HTTP/1.0") or not (
            status.isascii() and status.isdigit() and len(status) == 3
        ):
            raise BadStatusLine(line[:80].decode("latin-1"))
        self.status = int(status)
        return version

    def _headers(self) -> Step[dict[str, str]]:
        found: dict[str, str] = {}
        for _ in range(_MOST_HEADERS):
            line = (yield from self._line()).decode("latin-1")
            if not line:
                return found
            name, colon, value = line.partition(":")
            if not colon:
                raise NotHttp(f"a header without a colon: {line[:40]!r}")
            if "\r" in line:  # RFC 9112, section 2.2: others take it for the end of a line
                raise NotHttp(f"a carriage return inside a header: {line[:40]!r}")
            if not _NAME(name):  # readers differ in where the head ends then
                raise NotHttp(f"no name of a header: {name[:40]!r}")
            name, value = name.lower(), value.strip()
            if name == "content-length" and found.get(name, value) != value:
                raise NotHttp("the content length is given twice")
            found[name] = value
        raise NotHttp(f"more than {_MOST_HEADERS} headers")

    def _line(self) -> Step[bytes]:
        """The next line, without its end."""
        arrived, looked_at = self._connection.arrived, 0
        while (end := arrived.find(b"\n", looked_at, _LONGEST_LINE)) < 0:
            looked_at = len(arrived)
            if looked_at >= _LONGEST_LINE:
                raise NotHttp("a line is too long")
            if not (yield):
                raise CutShort
        return self._connection.take(end + 1)[:-1].removesuffix(b"\r")
