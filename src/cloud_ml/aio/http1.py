"""HTTP/1.1 as a client speaks it: one request and its answer on a connection."""

from __future__ import annotations

from collections.abc import Mapping

from cloud_ml.aio.wire import Wire
from cloud_ml.net.client.errors import BadStatusLine, CutShort, NotHttp
from cloud_ml.sdk.messages import BLOCK_BYTES

_LONGEST_LINE = 64 * 1024
_MOST_HEADERS = 200
_HEXADECIMAL = frozenset(b"0123456789abcdefABCDEF")
_MOST_DIGITS = 18
_WITHOUT_BODY = frozenset({204, 304})


class Response:
    """An answer: its head after ``begin``, then its body as it comes.

    Attributes:
        status: Such as 200.
        headers: Their names are in lower case; the last of a name counts.
        reusable: Whether the connection can serve another request: the body was read to its end.
    """

    def __init__(self, wire: Wire, *, timeout_s: float) -> None:
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self.reusable = False
        self._wire = wire
        self._timeout_s = timeout_s
        self._left: int | None = (
            0  # bytes of the body, or of the chunk; None: up to the end of the connection
        )
        self._chunked = False
        self._behind_chunk = False
        self._stays = False

    async def begin(self, method: str, *, last: bool = False) -> None:
        """Read the head; with ``last`` the connection shall serve no other request.

        Raises:
            OSError: The connection broke, or the server was silent for too long.
            NotHttp: This is no HTTP.
        """
        async with self._wire.within(self._timeout_s):
            while True:
                version = await self._status_line()
                self.headers = await self._headers()
                if self.status >= 200:
                    break
        said = self.headers.get("connection", "").lower()
        self._stays = not last and version == "HTTP/1.1" and "close" not in said
        length = self.headers.get("content-length")
        if method == "HEAD" or self.status in _WITHOUT_BODY:
            self._end()
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

    async def read_some(self) -> bytes:
        """The next bytes of the body; empty at its end. Raises as ``begin`` does."""
        if self._left == 0 and not self._chunked:
            return b""
        async with self._wire.within(self._timeout_s):
            if self._chunked and not self._left and not await self._next_chunk():
                return b""
            chunk = await self._wire.receive(
                BLOCK_BYTES if self._left is None else min(self._left, BLOCK_BYTES)
            )
        if not chunk:
            if self._left is None:
                return b""
            raise CutShort
        if self._left is not None:
            self._left -= len(chunk)
            if not self._left and not self._chunked:
                self._end()
        return chunk

    def _end(self) -> None:
        self._left, self._chunked = 0, False
        self.reusable = self._stays and not self._wire.arrived

    async def _next_chunk(self) -> bool:
        if self._behind_chunk and await self._line():
            raise NotHttp("a chunk is longer than it said")
        size = (await self._line()).partition(b";")[0].strip()
        if not size or not _HEXADECIMAL.issuperset(size):
            raise NotHttp(f"the size of a chunk is {size[:40]!r}")
        self._left = int(size, 16)
        self._behind_chunk = True
        if self._left:
            return True
        await self._headers()  # what follows the last chunk
        self._end()
        return False

    async def _status_line(self) -> str:
        if not self._wire.arrived and not await self._wire.more():
            raise ConnectionResetError("the server closed the connection without an answer")
        try:
            line = await self._line()
        except CutShort:
            raise BadStatusLine(bytes(self._wire.arrived[:80]).decode("latin-1")) from None
        version, _, rest = line.decode("latin-1").partition(" ")
        status = rest[:3]
        if version not in ("HTTP/1.1", "HTTP/1.0") or not (
            status.isascii() and status.isdigit() and len(status) == 3
        ):
            raise BadStatusLine(line[:80].decode("latin-1"))
        self.status = int(status)
        return version

    async def _headers(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for _ in range(_MOST_HEADERS):
            line = (await self._line()).decode("latin-1")
            if not line:
                return found
            name, colon, value = line.partition(":")
            if not colon:
                raise NotHttp(f"a header without a colon: {line[:40]!r}")
            if "\r" in line:  # RFC 9112, section 2.2: others take it for the end of a line
                raise NotHttp(f"a carriage return inside a header: {line[:40]!r}")
            name, value = name.strip().lower(), value.strip()
            if name == "content-length" and found.get(name, value) != value:
                raise NotHttp("the content length is given twice")
            found[name] = value
        raise NotHttp(f"more than {_MOST_HEADERS} headers")

    async def _line(self) -> bytes:
        """The next line, without its end."""
        looked_at = 0
        while (end := self._wire.arrived.find(b"\n", looked_at, _LONGEST_LINE)) < 0:
            looked_at = len(self._wire.arrived)
            if looked_at >= _LONGEST_LINE:
                raise NotHttp("a line is too long")
            if not await self._wire.more():
                raise CutShort
        return self._wire.take(end + 1).rstrip(b"\r\n")
