"""The stream of changes, across cut connections and restarts of the server: server-sent events."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from cloud_ml.aio.clock import sleep as pause
from cloud_ml.errors import TooMany, TransportError, TryAgain
from cloud_ml.models.job import JobChange
from cloud_ml.sdk.patience import PATIENCE
from cloud_ml.sdk.pieces import EventReader, document_of
from cloud_ml.sdk.retries import RetryPolicy

Open = Callable[[int | None], Awaitable[AbstractAsyncContextManager[AsyncIterable[bytes]]]]
"""Opens the stream behind an event, or where it begins."""


async def follow_changes(
    open_stream: Open,
    *,
    after: int | None = None,
    patience: RetryPolicy = PATIENCE,
    sleep: Callable[[float], Awaitable[None]] = pause,
) -> AsyncGenerator[JobChange]:
    """Yield change after change, for as long as the caller wants.

    Args:
        open_stream: Asks the server.
        after: Begin behind this revision.
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
                        change = document_of(JobChange, event.data) if event.kind in ("job", "gone") else None
                        failures = 0
                        if change is not None:
                            yield change
                        # Kept only now: who is cut off while the caller works on an event gets the next one.
                        after = after if event.id is None else event.id
        except TooMany:  # it has been asked a few times, and whoever has too many knows best which to close
            raise
        except (TransportError, TryAgain):
            failures += 1
            if failures >= patience.attempts:
                raise
            await sleep(patience.backoff(failures, random.random()))  # noqa: S311 - spreads retries, guards nothing
