# Made of aio/jobs/follow.py by tools/twins.py: change that one, then run `make format`.
"""A job's log as one stream, across cut connections and restarts of the server.

The log of a task, all attempts one behind the other, is one sequence of bytes that only grows. So a
position in it is all that has to be kept: after a cut the log is asked for from there on. The one
exception is a log that outgrew the server's limit, of which the middle is dropped: a cut that comes
later than that may repeat or lose lines.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from cloud_ml.errors import TooMany, TransportError, TryAgain
from cloud_ml.sdk.clock import sleep as pause
from cloud_ml.sdk.pieces import LastLines
from cloud_ml.sdk.retries import RetryPolicy
from cloud_ml.sdk.timeouts import PATIENCE


class Writes(Protocol):
    """What writes a log: a job, or a replica of a service."""

    @property
    def revision(self) -> int:
        """Grows when it changes."""

    @property
    def phase(self) -> str:
        """Where it stands."""

    @property
    def attempt(self) -> int:
        """The attempt that writes."""

    @property
    def finished(self) -> bool:
        """Whether it has ended."""


@dataclass(frozen=True)
class Written:
    """How a replica stands that writes a log; see ``Writes``."""

    revision: int
    phase: str
    attempt: int = 1
    finished: bool = False


class LogSource(Protocol):
    """Where the log comes from."""

    def open(self, *, follow: bool, offset: int = 0) -> AbstractContextManager[Iterable[bytes]]:
        """The log without its first ``offset`` bytes; with ``follow`` until it can grow no more."""

    def job(self, newer_than: int | None = None) -> Writes:
        """The job or replica as it stands; with a revision, after waiting a while for a newer
        one.
        """


def follow_log(
    source: LogSource,
    *,
    lines: int | None = None,
    attempt: int | None = None,
    position: int = 0,
    patience: RetryPolicy = PATIENCE,
    sleep: Callable[[float], None] = pause,
) -> Generator[bytes]:
    """Yield the log until the job (or ``attempt``) is over.

    Args:
        source: Where the log comes from.
        lines: Begin with the last so many lines of what there is now, instead of with the first.
        attempt: The attempt that ``source`` is limited to, if it is.
        position: Begin behind so many bytes.
        patience: How many times in a row the server may fail before its error is handed on.
        sleep: Waits between tries.

    Raises:
        CloudMlError: The server refuses, or has failed too often without anything new in between.
    """
    if lines is not None:
        tail = LastLines(lines)
        with source.open(follow=False) as chunks:
            for chunk in chunks:
                tail.feed(chunk)
        position = tail.size
        yield tail.text()
    failures = 0
    while True:
        try:
            with source.open(follow=True, offset=position) as chunks:
                for chunk in chunks:
                    position += len(chunk)
                    failures = 0
                    yield chunk
            job = source.job()
            if (
                job.finished
                or job.phase == "Saved"
                or (attempt is not None and job.attempt > attempt)
            ):
                # The server also ends a stream when it stops. Had the job gone on and ended in
                # that time, the last lines would be missing.
                with source.open(follow=False, offset=position) as chunks:
                    for chunk in chunks:
                        position += len(chunk)
                        yield chunk
                return
            # The stream has ended and the job has not: without this the log would be asked for
            # again and again at once.
            source.job(newer_than=job.revision)
        except (
            TooMany
        ):  # it has been asked a few times, and whoever has too many knows best which to close
            raise
        except (TransportError, TryAgain):
            failures += 1
            if failures >= patience.attempts:
                raise
            sleep(patience.backoff(failures, random.random()))  # noqa: S311 - spreads retries, guards nothing
