"""Header blocks to heads of requests, remembered as long as they mean the same."""

from collections.abc import Callable
from typing import Generic, TypeVar

from hpack import Decoder
from hpack.exceptions import HPACKError
from hpack.table import HeaderTable

from cloud_ml.serving.http2.frames import COMPRESSION_ERROR, ConnectionFault

T = TypeVar("T")
REMEMBERED = 256
"""Heads kept for each connection."""
LONGEST = 1024
"""Bytes of a block that is kept."""

_HOP_BY_HOP = {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
_PSEUDO = {b":method", b":scheme", b":path", b":authority"}


def malformed(fields: list[tuple[bytes, bytes]]) -> bool:
    """Whether a request may not have these fields: RFC 9113, sections 8.2 and 8.3."""
    pseudo: dict[bytes, bytes] = {}
    regular = False
    for name, value in fields:
        if name != name.lower() or any(each in value for each in (b"\0", b"\r", b"\n")):
            return True
        if name[:1] == b":":
            if regular or name not in _PSEUDO or name in pseudo:
                return True
            pseudo[name] = value
            continue
        regular = True
        if not name or name in _HOP_BY_HOP or (name == b"te" and value != b"trailers"):
            return True
    return not (pseudo.get(b":method") and pseudo.get(b":scheme") and pseudo.get(b":path"))


class WatchedTable(HeaderTable):
    """hpack's table of header fields, which counts how often it changed."""

    changes = 0

    def add(self, name: bytes, value: bytes) -> None:
        self.changes += 1
        super().add(name, value)

    @property
    def maxsize(self) -> int:
        return int(self._maxsize)

    @maxsize.setter
    def maxsize(self, newmax: int) -> None:
        self.changes += 1
        HeaderTable.maxsize.fset(self, newmax)  # type: ignore[attr-defined]


class Heads(Generic[T]):
    """Reads header blocks of one connection, in the order in which they come.

    A client sends nearly the same block again and again. A block that does not change the table of the decoder means
    the same until something does: it is then looked up by its bytes, which costs a hundredth of decoding it.

    Args:
        understand: makes what a head means to the server of its fields, which come in the order they were sent in.
        max_bytes: the largest list of fields, counted as RFC 9113 section 6.5.2 does.
    """

    def __init__(self, understand: Callable[[list[tuple[bytes, bytes]]], T], max_bytes: int) -> None:
        self._understand = understand
        self._table = WatchedTable()
        self._decoder = Decoder(max_header_list_size=max_bytes)
        self._decoder.header_table = self._table
        self._seen: dict[bytes, T] = {}

    def known(self, block: bytes) -> T | None:
        """What a block means that was read before, for a request; None where it has to be read."""
        return self._seen.get(block)

    def read(self, block: bytes, *, trailers: bool = False) -> T | None:
        """What the block means; None where a request may not have such a head, and for ``trailers``.

        Raises:
            ConnectionFault: where it cannot be decoded; the table is lost then, and the connection with it.
        """
        known = self._seen.get(block)
        if known is not None and not trailers:
            return known
        before = self._table.changes
        try:
            fields = [(field[0], field[1]) for field in self._decoder.decode(block, raw=True)]
        except (HPACKError, UnicodeDecodeError, IndexError) as error:
            raise ConnectionFault(COMPRESSION_ERROR, f"header block: {type(error).__name__}") from error
        if self._table.changes != before or len(self._seen) >= REMEMBERED:
            self._seen.clear()
        if trailers or malformed(fields):
            return None
        head = self._understand(fields)
        if self._table.changes == before and len(block) <= LONGEST:
            self._seen[block] = head
        return head
