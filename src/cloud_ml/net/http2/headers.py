"""Header blocks to what they mean, remembered as long as they mean the same."""

import re
from collections.abc import Callable
from typing import Generic, TypeVar

from hpack import Decoder
from hpack.exceptions import HPACKDecodingError, HPACKError
from hpack.table import HeaderTable

from cloud_ml.net.http2.frames import (
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
KEPT_BYTES = 131_072
"""Bytes of all their fields together: a block of few bytes may name long fields of the table
again and again.
"""
LONGEST = 1024
"""Bytes of a block that is kept."""
OVERSIZED = 4
"""Times the bound of a head up to which a larger one is decoded, so that only its own request is
refused.
"""
DECODED_UNITS = 16
"""Units of a block that is decoded, beside one for each of its fields and for each 8 of its
bytes.
"""
SIZE_UPDATES = 2
"""Changes of the table's size at the beginning of a block that mean something: RFC 7541, section
4.2.
"""
EMPTY_FRAMES = 16
"""Frames of CONTINUATION without a byte that a head may have."""

_CONNECTION_SPECIFIC = {
    b"connection",
    b"keep-alive",
    b"proxy-connection",
    b"transfer-encoding",
    b"upgrade",
}
_PSEUDO = {b":method", b":scheme", b":path", b":authority"}
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
_VALUE = re.compile(rb"(?:[^\0\r\n\t ](?:[^\0\r\n]*[^\0\r\n\t ])?)?")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_AUTHORITY = re.compile(rb"(?:\[[0-9A-Za-z:.%_~-]+\]|[A-Za-z0-9._~!$&'()*+,;=%-]*)(?::[0-9]{0,5})?")


def is_malformed(fields: Fields) -> bool:
    """Whether a request may not have these fields: RFC 9113, sections 8.2 and 8.3."""
    count = next((place for place, field in enumerate(fields) if field[0][:1] != b":"), len(fields))
    # Section 8.3: a pseudo field may stand neither twice (the dictionary is shorter then) nor
    # behind a regular field (`_NAME` has no colon).
    pseudo = dict(fields[:count])
    if len(pseudo) != count or not _PSEUDO.issuperset(pseudo) or malformed_regular(fields[count:]):
        return True
    if (
        not all(map(_VALUE.fullmatch, pseudo.values()))
        or not pseudo.get(b":method")
        or not pseudo.get(b":scheme")
    ):
        return True
    path = pseudo.get(b":path", b"")
    if path[:1] != b"/" and (path != b"*" or pseudo[b":method"] != b"OPTIONS"):
        return True
    # Section 8.3.1: a Host that differs from the authority is malformed.
    hosts = {value for name, value in fields if name in (b":authority", b"host")}
    return len(hosts) > 1 or not all(map(_AUTHORITY.fullmatch, hosts))


def malformed_regular(fields: Fields) -> bool:
    """Whether these may not stand behind pseudo fields, or in trailers: sections 8.1, 8.2.1 and
    8.2.2.
    """
    for name, value in fields:
        if malformed_field(name, value) or name in _CONNECTION_SPECIFIC:
            return True
        if name == b"te" and value.lower() != b"trailers":
            return True
    return False


def malformed_field(name: bytes, value: bytes) -> bool:
    """Whether this is no name in lower case, or no value."""
    return _NAME.fullmatch(name) is None or _VALUE.fullmatch(value) is None


def declared_length(fields: Fields) -> int | None:
    """The content-length of a request; None where it has none, below 0 where it is malformed:
    section 8.1.1.
    """
    # RFC 9110, section 8.6: the same length given twice may be taken for one.
    values = {value for name, value in fields if name == b"content-length"}
    if not values:
        return None
    value = values.pop()
    return -1 if values or _LENGTH.fullmatch(value) is None else int(value)


class WatchedTable(HeaderTable):
    """hpack's table of header fields, which counts how often it changed, and how often its size
    did in a block.
    """

    changes = 0
    size_updates = 0

    def add(self, name: bytes, value: bytes) -> None:
        self.changes += 1
        super().add(name, value)

    @property
    def maxsize(self) -> int:
        return int(self._maxsize)

    @maxsize.setter
    def maxsize(self, newmax: int) -> None:
        self.changes += 1
        self.size_updates += 1
        if self.size_updates > SIZE_UPDATES:  # each costs the peer a byte, and us 3 µs
            raise HPACKDecodingError("too many changes of the size of the table")
        HeaderTable.maxsize.fset(self, newmax)  # type: ignore[attr-defined]


class Split:
    """A header block that comes in several frames, one after the other: RFC 9113, section 6.10."""

    __slots__ = ("_block", "_empty", "_flags", "_most", "_most_empty", "_number", "open")

    def __init__(self, most: int, most_empty: int = EMPTY_FRAMES) -> None:
        self._most = most
        self._most_empty = most_empty
        self.open = False
        self._number = self._flags = self._empty = 0
        self._block = bytearray()

    def begin(self, number: int, flags: int, block: bytes) -> None:
        """HEADERS came without their end."""
        self.open, self._number, self._flags, self._block = True, number, flags, bytearray(block)
        self._empty = 0

    def add(self, number: int, flags: int, payload: bytes) -> tuple[int, bytes] | None:
        """CONTINUATION came; the flags of the beginning and the whole block, once it is whole.

        Raises:
            ConnectionFault: where nothing is continued by it, or without an end.
        """
        if not self.open or number != self._number:
            raise ConnectionFault(PROTOCOL_ERROR, "CONTINUATION of nothing")
        self._block += payload
        self._empty += not payload
        # Checked with each frame: END_HEADERS may never come (CONTINUATION flood, VU#421644).
        if len(self._block) > self._most or self._empty > self._most_empty:
            raise ConnectionFault(ENHANCE_YOUR_CALM, "a head without end")
        if not flags & END_HEADERS:
            return None
        block, self._block, self.open = bytes(self._block), bytearray(), False
        return self._flags, block


class Blocks(Generic[T]):
    """Reads header blocks of one connection, in the order in which they come.

    A peer sends nearly the same block again and again. A block that does not change the table of
    the decoder means the same until something does: it is then looked up by its bytes, which costs
    a hundredth of decoding it.

    A block cannot be taken for another: all its bytes are compared, what they mean depends on
    nothing else than the table, and any change of the table (a field added, its size changed, to
    the same size as well) forgets all blocks. A block that itself changes the table is never kept.
    Each connection has its own blocks.

    Args:
        meaning: Of the fields of a block, in the order they were sent in.
        max_bytes: The largest list of fields, counted as RFC 9113 section 6.5.2 does.
        too_large: What a block means whose list is larger, up to ``OVERSIZED`` times; without it
            that is a fault.
        apart: Whether a meaning is not for ``known``, which has no time to look at it.
        kept_bytes: The most bytes of fields that are remembered.
    """

    def __init__(
        self,
        meaning: Callable[[Fields], T],
        max_bytes: int,
        too_large: T | None = None,
        apart: Callable[[T], bool] = lambda _: False,
        kept_bytes: int = KEPT_BYTES,
    ) -> None:
        self._kept_bytes = kept_bytes
        self._meaning = meaning
        self._max_bytes = max_bytes
        self._too_large = too_large
        self._is_apart = apart
        self._table = WatchedTable()
        # The bound is on the decoded list: few bytes can name a long field of the table again and
        # again (HPACK bomb, CVE-2016-6581).
        self._decoder = Decoder(
            max_header_list_size=max_bytes * (1 if too_large is None else OVERSIZED)
        )
        self._decoder.header_table = self._table
        self._cache: dict[bytes, T] = {}
        self._apart: dict[bytes, T] = {}
        self._cache_bytes = 0
        self._units = 0

    def take_units(self) -> int:
        """The work of the blocks that were decoded since it was last asked."""
        units, self._units = self._units, 0
        return units

    def known(self, block: bytes) -> T | None:
        """What a block means that was read before; None where it has to be read."""
        return self._cache.get(block)

    def read(self, block: bytes) -> T:
        """What the block means.

        Raises:
            ConnectionFault: where it cannot be decoded; the table is lost then, and the connection
                with it.
        """
        known = self._cache.get(block) or self._apart.get(block)
        if known is not None:
            return known
        before = self._table.changes
        fields = self.fields(block)
        size = sum(len(name) + len(value) + 32 for name, value in fields)
        if size > self._max_bytes and self._too_large is not None:
            return self._too_large
        found = self._meaning(fields)
        # A block that changes the table would have to change it again each time that it comes.
        if self._table.changes == before and len(block) <= LONGEST:
            self._keep(block, found, size)
        return found

    def fields(self, block: bytes) -> Fields:
        """The fields of a block, for which the table has to follow.

        Raises:
            ConnectionFault: as for ``read``.
        """
        before = self._table.changes
        self._table.size_updates = 0
        try:
            fields = [(field[0], field[1]) for field in self._decoder.decode(block, raw=True)]
        except (HPACKError, UnicodeDecodeError, IndexError) as error:
            raise ConnectionFault(
                COMPRESSION_ERROR, f"header block: {type(error).__name__}"
            ) from error
        self._units += DECODED_UNITS + len(fields) + (len(block) >> 3)
        if self._table.changes != before:
            self._forget()
        return fields

    def _keep(self, block: bytes, found: T, size: int) -> None:
        if size > self._kept_bytes:
            return
        self._cache_bytes += size
        if (
            len(self._cache) + len(self._apart) >= REMEMBERED
            or self._cache_bytes > self._kept_bytes
        ):
            self._forget()
            self._cache_bytes = size
        (self._apart if self._is_apart(found) else self._cache)[block] = found

    def _forget(self) -> None:
        self._cache.clear()
        self._apart.clear()
        self._cache_bytes = 0
