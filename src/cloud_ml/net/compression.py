"""Compressed bodies, read with a bound and made, in slices that fit into a turn of the event
loop.
"""

import zlib
from collections.abc import Callable, Iterator

from cloud_ml.net.errors import BadRequest, ServingError, TooLarge
from cloud_ml.net.pieces import Body, pieces_of
from cloud_ml.net.tuning import SLICE_BYTES, SLICE_UNITS

_INPUT_BYTES = 16_384

Defer = Callable[[Callable[[], None], int], None]
"""Counts units of work that was done in this turn, and calls something in a later one."""


class Inflater:
    """Reads a body that was compressed by gzip or deflate, slice by slice.

    Args:
        body: What came.
        encoding: ``gzip`` or ``deflate``.
        most: The largest body that may come out.
    """

    def __init__(self, body: Body, encoding: str, most: int) -> None:
        # 31 is the gzip format, 15 is zlib's: RFC 9110, section 8.4.1.2 calls the latter "deflate".
        self._reader = zlib.decompressobj(31 if encoding == "gzip" else 15)
        self._encoding = encoding
        self._most = most
        self._input = _slices(body, _INPUT_BYTES)
        self.parts: list[bytes] = []
        self.size = 0

    def step(self) -> bool:
        """Read the next slice; whether it was the last.

        Raises:
            BadRequest: The body is damaged.
            TooLarge: It is larger than it may be.
        """
        reader, made, read = self._reader, 0, 0
        while not reader.eof and made < SLICE_BYTES and read < SLICE_BYTES:
            # The second argument bounds what one step makes of a bomb; zlib keeps the input that it
            # did not use in `unconsumed_tail`.
            data = reader.unconsumed_tail or next(self._input, b"")
            try:
                piece = reader.decompress(data, SLICE_BYTES - made)
            except zlib.error as error:
                raise BadRequest(f"the message is no {self._encoding}: {error}") from error
            if not data and not piece:
                raise BadRequest(f"the message is no whole {self._encoding}")
            made += len(piece)
            read += len(data)
            if piece:
                self.parts.append(piece)
        self.size += made
        if self.size > self._most:
            raise TooLarge(f"the message is larger than {self._most} bytes when it is decompressed")
        # What stands behind the end would be lost without a word, such as a second gzip member.
        if reader.eof and (reader.unused_data or reader.unconsumed_tail or next(self._input, b"")):
            raise BadRequest(f"the message is no whole {self._encoding}")
        return reader.eof

    @property
    def content(self) -> bytes:
        """What came out."""
        return self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)


class Deflater:
    """Compresses a body by gzip or deflate, slice by slice."""

    def __init__(self, body: Body, encoding: str) -> None:
        self._packer = zlib.compressobj(1, zlib.DEFLATED, 31 if encoding == "gzip" else 15)
        self._input = _slices(body, SLICE_BYTES // 2)  # it takes twice as long
        self.parts: list[bytes] = []

    def step(self) -> bool:
        """Compress the next slice; whether it was the last."""
        data = next(self._input, b"")
        self.parts.append(self._packer.compress(data) if data else self._packer.flush())
        return not data


class SlicedWork:
    """Runs the steps of an inflater or deflater: the first at once, each further one in a later
    turn.

    Args:
        steps: What is to be done.
        defer: Calls something in a later turn.
        still_needed: Whether somebody still waits for it.
        done: Called once, after the last step.
        failed: Called instead with what a step raised.
    """

    def __init__(
        self,
        steps: Inflater | Deflater,
        *,
        defer: Defer,
        still_needed: Callable[[], bool],
        done: Callable[[], None],
        failed: Callable[[ServingError], None],
    ) -> None:
        self._steps = steps
        self._defer = defer
        self._still_needed = still_needed
        self._done = done
        self._failed = failed

    def run(self) -> None:
        """Do the next step."""
        try:
            over = self._steps.step()
        except ServingError as error:
            self._failed(error)
            return
        if over:
            self._done()
        elif self._still_needed():
            self._defer(self.run, SLICE_UNITS)


def decompressed(data: bytes | bytearray, encoding: str, most: int) -> bytes:
    """What was compressed by gzip or deflate, if it is not larger than ``most``.

    Raises:
        BadRequest: where it is damaged.
        TooLarge: where it is larger.
    """
    reader = Inflater(data, encoding, most)
    while not reader.step():
        pass
    return reader.content


def _slices(body: Body, size: int) -> Iterator[bytes | memoryview]:
    for piece in pieces_of(body):
        view = memoryview(piece)
        for at in range(0, len(view), size):
            yield view[at : at + size]
