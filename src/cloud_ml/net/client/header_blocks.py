"""Blocks of headers as HTTP/2 packs them (RFC 7541): what a client needs to read answers, and to
write a request.

Each block is decoded. No block is known again by its bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from cloud_ml.net.client.errors import NotHttp
from cloud_ml.net.http2.frames import string

_STATIC = (
    ":authority|:method=GET|:method=POST|:path=/|:path=/index.html|:scheme=http|:scheme=https|:status=200|"
    ":status=204|:status=206|:status=304|:status=400|:status=404|:status=500|accept-charset|"
    "accept-encoding=gzip, "
    "deflate|accept-language|accept-ranges|accept|access-control-allow-origin|age|"
    "allow|authorization|cache-control|content-disposition|content-encoding|content-language|"
    "content-length|content-location|content-range|content-type|cookie|date|etag|expect|expires|from|host|"
    "if-match|if-modified-since|if-none-match|if-range|if-unmodified-since|last-modified|link|location|"
    "max-forwards|proxy-authenticate|proxy-authorization|range|referer|refresh|retry-after|server|"
    "set-cookie|strict-transport-security|transfer-encoding|user-agent|vary|via|www-authenticate"
)
"""Appendix A: names, some with a value."""
_LENGTHS = (
    "ISXXXXXXXTZXXZXXXXXXXXZXXXXXXXXXBFFHIBDGFFDGDBBBAAABBBBBBBCDKBHFIBCCCCCCCCCCCCCCCCCCCCCCDCDIOIJBKABA"
    "BABBBACCBBBABCBAABCCCCCKGJIXPRPPRRRSRSSSSSTSTTRSTSSSSQRSRSSTRQPRRSSQSRRTQRSSQQRQSRSSPRRRSRRSVVPORSRU"
    "VVVWWVTUOQVWWVWTQQVVXWWWPTPQRQQSRRUUTTVSVWVVWWWWWXWWWWWV"
)
"""Appendix B: bits of the code of each byte, A for 5. Codes of one length follow the order of
the bytes.
"""
_MOST_BYTES = 64 * 1024
_ENTRY_BYTES = 32


def encode_block(headers: Iterable[tuple[str, str]]) -> bytes:
    """A block of headers, each said in full, none to be remembered."""
    return b"".join(
        # 0x10: never indexed (RFC 7541, section 6.2.3), since a token is among the values.
        b"\x10" + string(name.encode()) + string(value.encode())
        for name, value in headers
    )


class HeaderBlocks:
    """Reads blocks of one connection, which remember what stood in those before."""

    def __init__(self) -> None:
        self._dynamic: list[tuple[str, str]] = []
        self._limit = 4096

    def read(self, block: bytes) -> dict[str, str]:
        """The headers of a block; the last of a name counts.

        Raises:
            NotHttp: It is malformed, or too large.
        """
        try:
            return self._read(block)
        except (IndexError, ValueError) as error:
            raise NotHttp(f"a block of headers is malformed: {error}") from None

    def _read(self, block: bytes) -> dict[str, str]:
        found: dict[str, str] = {}
        place = total = 0
        while place < len(block):
            first = block[place]
            if first & 0x80:
                index, place = _number(block, place, 7)
                name, value = self._entry(index)
            elif first & 0xE0 == 0x20:
                if found:
                    raise ValueError(
                        "the size of the table changes behind a header"
                    )  # RFC 7541, section 4.2
                self._limit, place = _number(block, place, 5)
                if self._limit > _MOST_BYTES:
                    raise ValueError("the table is too large")
                self._evict()
                continue
            else:
                remembered = first & 0xC0 == 0x40
                index, place = _number(block, place, 6 if remembered else 4)
                if index:
                    name = self._entry(index)[0]
                else:
                    name, place = _string(block, place)
                value, place = _string(block, place)
                if remembered:
                    self._dynamic.insert(0, (name, value))
                    self._evict()
            found[name] = value
            total += len(name) + len(value) + _ENTRY_BYTES
            if total > _MOST_BYTES:
                raise ValueError("it is too large")
        return found

    def _entry(self, index: int) -> tuple[str, str]:
        if index < 1:
            raise IndexError("there is no entry 0")
        static = _static()
        return static[index - 1] if index <= len(static) else self._dynamic[index - len(static) - 1]

    def _evict(self) -> None:
        while (
            sum(len(name) + len(value) + _ENTRY_BYTES for name, value in self._dynamic)
            > self._limit
        ):
            self._dynamic.pop()


@cache
def _static() -> tuple[tuple[str, str], ...]:
    return tuple(
        (name, value) for name, _, value in (one.partition("=") for one in _STATIC.split("|"))
    )


@cache
def _codes() -> dict[tuple[int, int], int]:
    """(Bits, code) → byte."""
    found, code, before = {}, 0, 0
    for bits, byte in sorted(
        (ord(letter) - ord("A") + 5, byte) for byte, letter in enumerate(_LENGTHS)
    ):
        code <<= bits - before
        found[bits, code] = byte
        code, before = code + 1, bits
    return found


def _number(block: bytes, place: int, bits: int) -> tuple[int, int]:
    most = (1 << bits) - 1
    value, place = block[place] & most, place + 1
    if value < most:
        return value, place
    # Four bytes are more than any index or length here; RFC 7541, section 5.1 asks for a limit.
    for shift in range(0, 28, 7):
        byte, place = block[place], place + 1
        value += (byte & 127) << shift
        if byte < 128:
            return value, place
    raise ValueError("a number is too large")


def _string(block: bytes, place: int) -> tuple[str, int]:
    coded = bool(block[place] & 0x80)
    size, place = _number(block, place, 7)
    content = block[place : place + size]
    if len(content) < size:
        raise ValueError("it is cut short")
    return (_decode_huffman(content) if coded else content).decode("utf-8", "replace"), place + size


def _decode_huffman(content: bytes) -> bytes:
    codes, found, code, bits = _codes(), bytearray(), 0, 0
    for byte in content:
        for shift in range(7, -1, -1):
            code, bits = code << 1 | byte >> shift & 1, bits + 1
            if (hit := codes.get((bits, code))) is not None:
                found.append(hit)
                code = bits = 0
            # No code is longer. EOS has 30 bits, too, and is not among them: section 5.2 forbids it.
            elif bits > 30:
                raise ValueError("a letter has no such code")
    # Section 5.2: the padding is fewer than 8 bits, all of them ones.
    if bits > 7 or code != (1 << bits) - 1:
        raise ValueError("its padding is wrong")
    return bytes(found)
