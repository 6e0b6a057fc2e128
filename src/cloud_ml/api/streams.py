"""Bodies that are made while they are sent."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import json
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from cloud_ml.api import errors
from cloud_ml.api.middleware import CALLER, STREAM
from cloud_ml.api.platform import Platform
from cloud_ml.errors import CloudMlError, TooMany
from cloud_ml.usecases.access.identities import Identity
from cloud_ml.usecases.offload import Offload

_LOOK_S = 1.0
_FAREWELL_S = 1.0
_SHORT_BYTES = 1 << 18
_TEXT = "text/plain; charset=utf-8"
# nginx otherwise collects an answer before it passes it on.
_UNBUFFERED = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class _Live(StreamingResponse):
    """An answer that goes on while something happens, and its key or token is believed. Each key
    may have so many of them.

    It ends with its chunks; and before, when the server goes down, the key or token is believed no
    more, or nobody is there any more. Nothing but the chunk itself costs anything while it is sent: logs
    have thousands a second.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        platform: Platform = scope["app"].state.platform
        caller = scope.get(CALLER)
        key = "" if caller is None else caller.access_key
        most = platform.settings.streams_per_key
        if platform.streams[key] >= most:
            refused = TooMany(
                f"this key has {most} streams open already",
                allowed=f"at most {most} at once",
                hint="Close some, or watch all jobs in one: GET /api/v1/jobs/-/watch.",
            )
            await errors.answer(refused)(scope, receive, send)
            return
        ends = [platform.hub.until_closed()]
        if caller is not None:
            ends.append(_wait_until_disabled(platform, caller))
        scope[STREAM] = True
        platform.streams[key] += 1
        try:
            with platform.metrics.streams.during((self.media_type or "").partition(";")[0]):
                await self._send_until(ends, receive, send)
        finally:
            platform.streams[key] -= 1
            if not platform.streams[key]:
                del platform.streams[key]

    async def _send_until(
        self, ends: Sequence[Coroutine[Any, Any, None]], receive: Receive, send: Send
    ) -> None:
        loop = asyncio.get_running_loop()
        chunks = aiter(self.body_iterator)
        gone = asyncio.ensure_future(self.listen_for_disconnect(receive))
        watching = [gone, *map(asyncio.ensure_future, ends)]
        try:
            with contextlib.suppress(TimeoutError):
                # Without a time until one of those that are watched ends: to wait for them and for
                # a chunk at once would take two tasks for each chunk.
                async with asyncio.timeout(None) as limit:
                    for one in watching:
                        one.add_done_callback(lambda _: _cut(limit, loop.time()))
                    await send(
                        {
                            "type": "http.response.start",
                            "status": self.status_code,
                            "headers": self.raw_headers,
                        }
                    )
                    async for chunk in chunks:
                        await send({"type": "http.response.body", "body": chunk, "more_body": True})
            if not gone.done():
                with contextlib.suppress(
                    TimeoutError
                ):  # who does not read does not hear of the end either
                    async with asyncio.timeout(_FAREWELL_S):
                        await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            for one in watching:
                one.cancel()
            if isinstance(chunks, AsyncGenerator):
                await chunks.aclose()


def _cut(limit: asyncio.Timeout, now: float) -> None:
    with contextlib.suppress(RuntimeError):  # it is over already
        limit.reschedule(now)


def text(chunks: AsyncIterator[bytes], headers: Mapping[str, str] | None = None) -> Response:
    """Plain text, each chunk sent as it comes; ends when ``chunks`` do or the server goes down.

    A reader that is slow holds up its own stream only; one that is gone ends it.
    """
    return _Live(chunks, media_type=_TEXT, headers={**_UNBUFFERED, **(headers or {})})


async def whole_text(
    chunks: AsyncGenerator[bytes], headers: Mapping[str, str] | None = None
) -> Response:
    """Plain text that is there already: in one piece if it is short, as most is."""
    first = bytearray()
    async for chunk in chunks:
        first += chunk
        if len(first) > _SHORT_BYTES:
            return text(_behind(bytes(first), chunks), headers)
    return Response(bytes(first), media_type=_TEXT, headers={**_UNBUFFERED, **(headers or {})})


def events(messages: AsyncIterator[bytes]) -> Response:
    """Server-sent events; ends when ``messages`` do or the server goes down."""
    return _Live(messages, media_type="text/event-stream", headers=_UNBUFFERED)


def json_lines(chunks: AsyncIterator[bytes]) -> Response:
    """JSON documents, a line each, sent as they come; ends like ``text``."""
    return _Live(chunks, media_type="application/x-ndjson", headers=_UNBUFFERED)


def text_in_json(member: str, chunks: AsyncIterator[bytes]) -> Response:
    """``{"<member>": "<text>"}`` without ever holding all of the text."""
    return StreamingResponse(
        _escape_chunks(member, chunks), media_type="application/json", headers=_UNBUFFERED
    )


def blocking(
    chunks: Iterator[bytes],
    offload: Offload,
    *,
    status: int,
    headers: Mapping[str, str],
    media_type: str,
) -> Response:
    """Chunks of an iterator that blocks, each fetched on a thread."""
    return StreamingResponse(_fetch_chunks(chunks, offload), status, headers, media_type)


async def _wait_until_disabled(platform: Platform, caller: Identity) -> None:
    """Return soon after the access token has ended, or the key, its user or its organisation was
    disabled, or the user has another role.
    """
    while True:
        await asyncio.sleep(platform.key_settings.staleness_s or _LOOK_S)
        with contextlib.suppress(CloudMlError):  # the store does not answer: nothing is known
            found = await _find_holder(platform, caller)
            if found is None or found.role is not caller.role:
                return


async def _find_holder(platform: Platform, caller: Identity) -> Identity | None:
    """The holder of the caller's token or key as it is now. All streams of one share a lookup."""
    if caller.token:
        found = platform.tokens.cached_holder(caller.token)
        return found or await platform.offload(platform.tokens.holder, caller.token)
    found = platform.identities.cached(caller.access_key)
    return found or await platform.offload(platform.identities.find, caller.access_key)


async def _behind(first: bytes, chunks: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    async with contextlib.aclosing(chunks):
        yield first
        async for chunk in chunks:
            yield chunk


async def _escape_chunks(member: str, chunks: AsyncIterator[bytes]) -> AsyncGenerator[str]:
    # A chunk may end inside of a character.
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    yield f'{{"{member}": "'
    async for chunk in chunks:
        yield json.dumps(decoder.decode(chunk))[1:-1]
    yield json.dumps(decoder.decode(b"", final=True))[1:-1] + '"}'


async def _fetch_chunks(chunks: Iterator[bytes], offload: Offload) -> AsyncGenerator[bytes]:
    try:
        while (chunk := await offload.moving(next, chunks, None)) is not None:
            yield chunk
    finally:
        if (close := getattr(chunks, "close", None)) is not None:
            await offload(close)
