"""A job's log as one stream, across cut connections and restarts of the server.

The log of a task, all attempts one behind the other, is one sequence of bytes that only grows. So a
position in it is all that has to be kept: after a cut the log is asked for from there on. The one
exception is a log that outgrew the server's limit, of which the middle is dropped: a cut that comes
later than that may repeat or lose lines.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from cloud_ml.errors import TransportError, TryAgain
from cloud_ml.models.job import Job
from cloud_ml.sdk.retries import RetryPolicy

PATIENCE = RetryPolicy(attempts=12, first_s=0.5, longest_s=15.0)
"""About two minutes without a byte from the server, in which it may be restarted or upgraded."""


class LogSource(Protocol):
    """Where the log comes from."""

    def open(self, *, follow: bool, offset: int = 0) -> AbstractContextManager[Iterable[bytes]]:
        """The log without its first ``offset`` bytes; with ``follow`` until it can grow no more."""

    def job(self, newer_than: int | None = None) -> Job:
        """The job as it stands; with a revision, after waiting a while for a newer one."""


@dataclass(frozen=True, slots=True)
class _Ending:
    over: bool
    revision: int


def follow_log(
    source: LogSource,
    *,
    lines: int | None = None,
    attempt: int | None = None,
    patience: RetryPolicy = PATIENCE,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[bytes]:
    """Yield the log until the job (or ``attempt``) is over.

    Args:
        source: Where the log comes from.
        lines: Begin with the last so many lines of what there is now, instead of with the first.
        attempt: The attempt that ``source`` is limited to, if it is.
        patience: How many times in a row the server may fail before its error is handed on.
        sleep: Waits between tries.

    Raises:
        CloudMlError: The server refuses, or has failed too often without anything new in between.
    """
    position = 0
    if lines is not None:
        position, tail = _tail(source, lines)
        yield tail
    failures = 0
    while True:
        try:
            for chunk in _from(source, position, follow=True):
                position += len(chunk)
                failures = 0
                yield chunk
            ending = _ending(source, attempt)
            if ending.over:
                # The server also ends a stream when it stops. Had the job gone on and ended in
                # that time, the last lines would be missing.
                for chunk in _from(source, position, follow=False):
                    position += len(chunk)
                    yield chunk
                return
            source.job(newer_than=ending.revision)
        except (TransportError, TryAgain):
            failures += 1
            if failures >= patience.attempts:
                raise
            sleep(patience.backoff(failures, random.random()))  # noqa: S311 - spreads retries, guards nothing


def last_lines(chunks: Iterable[bytes], lines: int) -> tuple[int, bytes]:
    """How many bytes there are, and the last ``lines`` lines of them; an unfinished line counts as one."""
    kept: deque[bytes] = deque(maxlen=lines)
    size, open_line = 0, b""
    for chunk in chunks:
        size += len(chunk)
        *complete, open_line = (open_line + chunk).split(b"\n")
        kept.extend(line + b"\n" for line in complete)
    if open_line:
        kept.append(open_line)
    return size, b"".join(kept)


def _tail(source: LogSource, lines: int) -> tuple[int, bytes]:
    with source.open(follow=False) as chunks:
        return last_lines(chunks, lines)


def _from(source: LogSource, position: int, *, follow: bool) -> Iterator[bytes]:
    with source.open(follow=follow, offset=position) as chunks:
        yield from chunks


def _ending(source: LogSource, attempt: int | None) -> _Ending:
    job = source.job()
    over = job.finished or job.phase == "Saved" or (attempt is not None and job.attempt > attempt)
    return _Ending(over, job.revision)
