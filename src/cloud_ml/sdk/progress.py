"""How far a transfer is: the one shape in which the SDK tells it and a command line shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import IO

Progress = Callable[[int, int | None], None]
"""Called with the bytes that are done, counted from the beginning, and the total if it is known.

The count may fall: a broken transfer goes on from the last byte that the other side has kept.
"""


def report_progress(
    chunks: Iterable[bytes], progress: Progress | None, *, total: int | None, done: int = 0
) -> Iterator[bytes]:
    """The chunks as they are; each is reported when it was taken on from here.

    Args:
        chunks: What is transferred.
        progress: Whom to tell; ``None`` tells nobody.
        total: The bytes in all, if known.
        done: The bytes that were done before.
    """
    if progress is None:
        yield from chunks
        return
    progress(done, total)
    for chunk in chunks:
        yield chunk
        done += len(chunk)
        progress(done, total)


class CountedReader:
    """A readable whose reads are reported.

    Args:
        source: What is read.
        progress: Whom to tell.
        total: The bytes in all, if known.
        done: The bytes that were read before.
    """

    def __init__(
        self, source: IO[bytes], progress: Progress, *, total: int | None, done: int = 0
    ) -> None:
        self._source = source
        self._progress = progress
        self._total = total
        self._done = done

    def read(self, size: int = -1) -> bytes:
        """The next bytes; empty at the end."""
        chunk = self._source.read(size)
        self._done += len(chunk)
        self._progress(self._done, self._total)
        return chunk
