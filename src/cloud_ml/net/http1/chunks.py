"""A body that comes in chunks: RFC 9112, section 7.1."""

import re

from cloud_ml.net.http1.heads import HeadFault

# 15 digits fit into 64 bits. `int` alone would also take `0x`, a sign and underscores.
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")
_TRAILER = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*")
LONGEST_LINE = 4096
"""Bytes of a size with its extensions, and of all trailers."""
JOINED = 1_024
"""Bytes of pieces that are kept as one."""
OVERHEAD = 1 << 20
"""Bytes of sizes and extensions that a body may have beyond eight for each byte of itself."""


class Chunks:
    """Collects the body as its bytes come in.

    ``behind`` tells that ``feed`` stopped before the end of what came, and is to be called again.
    ``lines`` are those that it read.

    Args:
        most: the largest body.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._parts: list[bytes] = []
        self._rest = b""
        self._missing = 0  # bytes of this chunk, with its line end
        self._trailing = False
        self._trailers = 0
        self._overhead = 0
        self.size = 0
        self.behind = False
        self.lines = 0

    @property
    def parts(self) -> list[bytes]:
        """What was collected."""
        return self._parts

    def feed(self, data: bytes, most_lines: int) -> bytes | None:
        """Take what came in, up to so many lines. What follows the body, once it is whole; None
        before.

        Raises:
            HeadFault: where it is no chunk, or too large.
        """
        data = self._rest + data
        at, end = 0, len(data)
        self.behind, self.lines = False, 0
        while at < end:
            if self._missing > 2:
                take = min(end - at, self._missing - 2)
                self._add(data[at : at + take])
                self._missing -= take
                at += take
            elif self._missing:
                # Of `_missing` the last two are CR and LF. They are compared: a proxy that reads
                # other bytes as the end of a chunk would see other requests than we do.
                if data[at] != b"\n\r"[self._missing - 1]:
                    raise HeadFault(400, "a chunk is not as long as it says")
                self._missing -= 1
                at += 1
            elif self.lines >= most_lines:
                self.behind = True
                break
            else:
                self.lines += 1
                # Only CRLF ends the line: what ends at a bare LF here may end elsewhere for a
                # proxy.
                stop = data.find(b"\r\n", at, at + LONGEST_LINE)
                if stop < 0:
                    if end - at >= LONGEST_LINE:
                        raise HeadFault(400, "a line between chunks is too long")
                    break
                line, at = data[at:stop], stop + 2
                if not self._trailing:
                    self._size(line)
                elif not line:
                    return data[at:]
                else:
                    self._trailer(line)
        self._rest = data[at:]
        return None

    def _add(self, data: bytes) -> None:
        """Keep a piece. Small ones are joined: each object takes forty bytes beside its content."""
        if self._parts and len(self._parts[-1]) + len(data) <= JOINED:
            self._parts[-1] += data
        else:
            self._parts.append(data)

    def _size(self, line: bytes) -> None:
        found = _SIZE.fullmatch(line)
        if found is None:
            raise HeadFault(400, "the size of a chunk is no hexadecimal number")
        size = int(found[1], 16)
        self.size += size
        self._overhead += len(line)
        # Refused by what it announces, before the bytes come.
        if self.size > self._most:
            raise HeadFault(413, f"a body of more than {self._most} bytes")
        # Extensions, or chunks of one byte, make the server read many times what the body holds (as
        # in CVE-2023-39326).
        if self._overhead > OVERHEAD + 8 * self.size:
            raise HeadFault(400, "chunks are smaller than what is said about them")
        if size:
            self._missing = size + 2
        else:
            self._trailing = True

    def _trailer(self, line: bytes) -> None:
        self._trailers += len(line)
        if _TRAILER.fullmatch(line) is None or self._trailers > LONGEST_LINE:
            raise HeadFault(400, "what follows the last chunk is no field")
