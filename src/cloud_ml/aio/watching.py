"""The stream of changes, across cut connections and restarts of the server: server-sent events."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager, aclosing
from typing import TypeVar

from cloud_ml.aio.clock import sleep as pause
from cloud_ml.errors import StartAgain, TooMany, TransportError, TryAgain
from cloud_ml.models.jobs.job import JobChange, JobEvent
from cloud_ml.sdk.pieces import EventReader, document_of
from cloud_ml.sdk.retries import RetryPolicy
from cloud_ml.sdk.timeouts import PATIENCE

T = TypeVar("T")
Open = Callable[[int | None], Awaitable[AbstractAsyncContextManager[AsyncIterable[bytes]]]]
"""Opens the stream behind an event, or where it begins."""
Relist = Callable[[], AsyncGenerator[JobChange]]
"""Everything as it stands, each at the revision from which to watch on; the first without a
``uid`` says only that.
"""


async def follow_changes(
    open_stream: Open,
    *,
    after: int | None = None,
    relist: Relist | None = None,
    patience: RetryPolicy = PATIENCE,
    sleep: Callable[[float], Awaitable[None]] = pause,
) -> AsyncGenerator[JobChange]:
    """Yield change after change, for as long as the caller wants; ``after`` is a revision. See
    ``follow_stream``.

    When the server's database was replaced by a backup, what was seen is void: then everything is
    told as it stands now, by ``relist`` or else by the stream itself, and changes from there on.
    """
    refusals = 0
    while True:
        stream = follow_stream(
            open_stream, JobChange, ("job", "gone"), after=after, patience=patience, sleep=sleep
        )
        try:
            async with aclosing(stream) as changes:
                async for change in changes:
                    refusals = 0
                    yield change
        except StartAgain:
            refusals += 1
            if refusals >= patience.attempts:
                raise
        else:
            return
        after = None
        if relist is not None:
            async with aclosing(relist()) as listed:
                async for change in listed:
                    after = change.revision
                    if change.uid:
                        yield change


async def follow_events(
    open_stream: Open,
    *,
    after: int | None = None,
    patience: RetryPolicy = PATIENCE,
    sleep: Callable[[float], Awaitable[None]] = pause,
) -> AsyncGenerator[JobEvent]:
    """Yield what is said about a job or a service, until there is no more; ``after`` is the id
    of an event.
    """
    stream = follow_stream(
        open_stream, JobEvent, ("said",), after=after, patience=patience, sleep=sleep
    )
    async with aclosing(stream) as events:
        async for event in events:
            yield event


async def follow_stream(
    open_stream: Open,
    kind: type[T],
    words: Collection[str],
    *,
    after: int | None,
    patience: RetryPolicy = PATIENCE,
    sleep: Callable[[float], Awaitable[None]] = pause,
) -> AsyncGenerator[T]:
    """Yield the documents of a stream of events, however often it is cut, until it says that it
    ends.

    Args:
        open_stream: Asks the server.
        kind: What the data of an event is.
        words: The kinds of events that have it.
        after: Begin behind the event of that number.
        patience: How many times in a row the server may fail before its error is handed on.
        sleep: Waits between tries.

    Raises:
        CloudMlError: The server refuses, or has failed too often without anything new in between.
    """
    failures = 0
    while True:
        try:
            async with await open_stream(after) as chunks:
                reader = EventReader()
                async for chunk in chunks:
                    for event in reader.feed(chunk):
                        if event.kind == "end":
                            return
                        found = document_of(kind, event.data) if event.kind in words else None
                        failures = 0
                        if found is not None:
                            yield found
                        # Kept only now: who is cut off while the caller works on an event gets the
                        # next one.
                        after = after if event.id is None else event.id
        except (
            TooMany
        ):  # it has been asked a few times, and whoever has too many knows best which to close
            raise
        except (TransportError, TryAgain):
            failures += 1
            if failures >= patience.attempts:
                raise
            await sleep(patience.backoff(failures, random.random()))  # noqa: S311 - spreads retries, guards nothing
