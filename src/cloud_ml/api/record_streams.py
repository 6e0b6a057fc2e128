"""Changes of records of any kind, and of what else has revisions, as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import TypeVar

from starlette.responses import Response

from cloud_ml.api import sse, streams
from cloud_ml.api.auth import Call
from cloud_ml.api.platform import Platform
from cloud_ml.domain.records import Kind, Record
from cloud_ml.state.epochs import epoch_of
from cloud_ml.usecases.feed import ChangeFeed, FeedChange, RecordChange, check_epoch

S = TypeVar("S")
T = TypeVar("T")
C = TypeVar("C", bound=FeedChange)
Document = Callable[[C], Awaitable[object]]
"""Makes the wire type of a change; ``None`` tells nothing of it."""


async def of_all(
    here: Platform,
    call: Call,
    kind: Kind[S, T],
    document: Document[RecordChange[S, T]],
    *,
    start: int | None,
    org_id: str | None,
    word: str = "changed",
) -> Response:
    """Changes of all records of a kind; see ``of_feed``."""
    feed = here.feed_of(kind)
    return await of_feed(here, call, feed, document, start=start, org_id=org_id, word=word)


async def of_feed(
    here: Platform,
    call: Call,
    feed: ChangeFeed[C],
    document: Document[C],
    *,
    start: int | None,
    org_id: str | None,
    word: str,
) -> Response:
    """All changes of a feed behind the revision ``start``, else from now on.

    ``word`` is the kind of the events; that of what is gone is ``gone``.

    Raises:
        StartAgain: The database was restored from a backup since that revision.
    """
    scope = await here.offload(here.identities.scope, call.caller, org_id)
    newest = await here.offload(here.store.revision)
    if start is None:
        start = newest
    check_epoch(start, newest)
    changes = feed.watch(scope, after=start, heartbeat_s=here.settings.heartbeat_s)
    message = partial(_message, feed, document, word)
    return streams.events(_messages(changes, message, start, here.settings.stream_limit_s))


async def of_one(
    here: Platform,
    find: Callable[[], Record[S, T]],
    kind: Kind[S, T],
    document: Document[RecordChange[S, T]],
    *,
    start: int | None,
    word: str = "changed",
) -> Response:
    """A record and its changes; see ``one_of_feed``."""

    def look() -> RecordChange[S, T]:
        record = find()
        key = record.key
        return RecordChange(record.revision, key.uid, key.org, key.name, record)

    return await one_of_feed(here, look, here.feed_of(kind), document, start=start, word=word)


async def one_of_feed(
    here: Platform,
    find: Callable[[], C],
    feed: ChangeFeed[C],
    document: Document[C],
    *,
    start: int | None,
    word: str,
) -> Response:
    """How that stands which ``find`` finds, and then each change of it, until it is gone.

    With ``start``, only changes behind that revision.

    Raises:
        StartAgain: The database was restored from a backup since that revision.
    """

    def look() -> tuple[int, C]:
        newest = here.store.revision()  # before it is read: whatever happens to it later is told
        return newest, find()

    newest, found = await here.offload(look)
    at = found.revision if epoch_of(found.revision) == epoch_of(newest) else newest
    if start is not None:
        check_epoch(start, max(newest, found.revision), known=found.revision)
    changes = feed.watch(
        found.org,
        uid=found.uid,
        after=at if start is None else start,
        heartbeat_s=here.settings.heartbeat_s,
    )
    first = replace(found, revision=at) if start is None else None
    limit_s = here.settings.stream_limit_s
    message = partial(_message, feed, document, word)
    return streams.events(
        _messages(changes, message, start or 0, limit_s, first=first, to_the_end=True)
    )


async def _message(feed: ChangeFeed[C], document: Document[C], word: str, one: C) -> bytes:
    """What all are told of a change who watch with the same document and word."""

    async def make() -> bytes:
        data = await document(one)
        if data is None:
            return sse.NOTHING_NEW
        return sse.message("gone" if one.gone else word, one.revision, data)

    return await feed.make_once((word, one.org, one.uid, one.revision, one.gone), make)


async def _messages(
    changes: AsyncGenerator[C | None],
    message: Callable[[C], Awaitable[bytes]],
    start: int,
    limit_s: float,
    *,
    first: C | None = None,
    to_the_end: bool = False,
) -> AsyncGenerator[bytes]:
    loop = asyncio.get_running_loop()
    over = loop.time() + limit_s
    yield sse.AGAIN + (b"\n" if first else f"id: {start}\nevent: ready\ndata: {{}}\n\n".encode())
    if first is not None:
        yield await message(first)
    async with aclosing(changes):
        async for one in changes:
            yield sse.NOTHING_NEW if one is None else await message(one)
            if loop.time() > over or (to_the_end and one is not None and one.gone):
                return
