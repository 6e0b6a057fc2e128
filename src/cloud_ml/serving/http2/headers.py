"""Header blocks to what they mean, remembered as long as they mean the same."""

from collections.abc import Callable
from typing import Generic, TypeVar

from hpack import Decoder
from hpack.exceptions import HPACKError
from hpack.table import HeaderTable

from cloud_ml.serving.http2.frames import (
    COMPRESSION_ERROR,
    END_HEADERS,
    ENHANCE_YOUR_CALM,
    PROTOCOL_ERROR,
    ConnectionFault,
)

T = TypeVar("T")
Fields = list[tuple[bytes, bytes]]
"""Names and values."""
REMEMBERED = 256
"""Blocks kept for each connection."""
LONGEST = 1024
"""Bytes of a block that is kept."""

_HOP_BY_HOP = {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
_PSEUDO = {b":method", b":scheme", b":path", b":authority"}


def malformed(fields: Fields) -> bool:
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


class Split:
    """A header block that comes in several frames, one after the other: RFC 9113, section 6.10."""

    __slots__ = ("_block", "_flags", "_most", "_number", "open")

    def __init__(self, most: int) -> None:
        self._most = most
        self.open = False
        self._number = self._flags = 0
        self._block = bytearray()

    def begin(self, number: int, flags: int, block: bytes) -> None:
        """HEADERS came without their end."""
        self.open, self._number, self._flags, self._block = True, number, flags, bytearray(block)

    def add(self, number: int, flags: int, payload: bytes) -> tuple[int, bytes] | None:
        """CONTINUATION came; the flags of the beginning and the whole block, once it is whole.

        Raises:
            ConnectionFault: where nothing is continued by it, or without an end.
        """
        if not self.open or number != self._number:
            raise ConnectionFault(PROTOCOL_ERROR, "CONTINUATION of nothing")
        self._block += payload
        if len(self._block) > self._most or (not payload and not flags & END_HEADERS):
            raise ConnectionFault(ENHANCE_YOUR_CALM, "a head without end")
        if not flags & END_HEADERS:
            return None
        block, self._block, self.open = bytes(self._block), bytearray(), False
        return self._flags, block


class Blocks(Generic[T]):
    """Reads header blocks of one connection, in the order in which they come.

    A peer sends nearly the same block again and again. A block that does not change the table of the decoder means
    the same until something does: it is then looked up by its bytes, which costs a hundredth of decoding it.

    Args:
        meaning: Of the fields of a block, in the order they were sent in.
        max_bytes: The largest list of fields, counted as RFC 9113 section 6.5.2 does.
    """

    def __init__(self, meaning: Callable[[Fields], T], max_bytes: int) -> None:
        self._meaning = meaning
        self._table = WatchedTable()
        self._decoder = Decoder(max_header_list_size=max_bytes)
        self._decoder.header_table = self._table
        self._seen: dict[bytes, T] = {}

    def known(self, block: bytes) -> T | None:
        """What a block means that was read before; None where it has to be read."""
        return self._seen.get(block)

    def read(self, block: bytes) -> T:
        """What the block means.

        Raises:
            ConnectionFault: where it cannot be decoded; the table is lost then, and the connection with it.
        """
        known = self._seen.get(block)
        if known is not None:
            return known
        before = self._table.changes
        found = self._meaning(self._fields(block))
        if self._table.changes == before and len(block) <= LONGEST:
            self._seen[block] = found
        return found

    def follow(self, block: bytes) -> None:
        """Read a block of no meaning here: the table has to follow.

        Raises:
            ConnectionFault: as for ``read``.
        """
        if block not in self._seen:
            self._fields(block)

    def _fields(self, block: bytes) -> Fields:
        before = self._table.changes
        try:
            fields = [(field[0], field[1]) for field in self._decoder.decode(block, raw=True)]
        except (HPACKError, UnicodeDecodeError, IndexError) as error:
            raise ConnectionFault(COMPRESSION_ERROR, f"header block: {type(error).__name__}") from error
        if self._table.changes != before or len(self._seen) >= REMEMBERED:
            self._seen.clear()
        return fields
