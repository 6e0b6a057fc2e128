"""The bytes of objects on their way in and out, for every surface that has them."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from email.utils import format_datetime
from typing import Protocol, TypeVar

from starlette.responses import Response

from cloud_ml.api import errors, ranges, streams
from cloud_ml.api.auth import UploadCall
from cloud_ml.api.platform import Platform
from cloud_ml.errors import Conflict
from cloud_ml.models import common
from cloud_ml.models.storage.objects import StoredObject
from cloud_ml.state.base import Once

T = TypeVar("T")
Kept_co = TypeVar("Kept_co", covariant=True)

BYTES = "application/octet-stream"

_PIECE = 2**20
_SMALL_PIECE = 2**16
_GATHERED_BYTES = 64 * 2**20
"""Where more waits in memory for all uploads together, pieces are small: many who stop sending
cost little each.
"""
_NEVER_A_PAGE = {
    "Accept-Ranges": "bytes",
    "Cache-Control": "private, no-cache",
    "Content-Disposition": "attachment",
    "Content-Security-Policy": "sandbox",
}
"""What users store may be HTML: it must not run in the origin of the console. And what a link
has opened must not be had from somebody's cache when the link is over.
"""


async def head(
    here: Platform, org: str, bucket: str, key: str, *, digest: bool = False
) -> Response:
    """What is known of an object, in headers; with ``digest`` its SHA-256, for which it may have to
    be read.

    Raises:
        NotFound: No such object.
    """
    if digest:
        stored = await here.offload.long(org, here.storage.head, org, bucket, key, digest=True)
    else:
        stored = await here.offload(here.storage.head, org, bucket, key)
    return Response(
        None, 200, {**_headers(stored), "Content-Length": str(stored.size)}, media_type=BYTES
    )


async def send(
    here: Platform,
    org: str,
    bucket: str,
    key: str,
    *,
    range_: str | None,
    if_match: str | None = None,
    if_range: str | None = None,
) -> Response:
    """An object's bytes, or the one range of them that the header ``Range`` asks for.

    With ``if_match``, the value of ``If-Match``, only of that version; otherwise the answer is 412.
    With ``if_range``, the value of ``If-Range``, the range of that version; otherwise all of the
    present one.

    Raises:
        NotFound: No such object.
    """

    def begin() -> tuple[StoredObject, ranges.Span | None, Closable]:
        if range_ is None:
            stored, chunks = here.storage.read(org, bucket, key)
            return stored, None, Closable(chunks)
        return _part(here, org, bucket, key, range_, if_match, if_range)

    try:
        stored, span, chunks = await here.offload(begin)
    except ranges.Unsatisfiable as error:
        return _out_of_range(error)
    if if_match is not None and not _matches(if_match, stored):
        await here.offload(chunks.close)
        return _precondition_failed(if_match, stored)
    headers = _headers(stored) | {"Content-Length": str(span.length if span else stored.size)}
    if span:
        headers["Content-Range"] = f"bytes {span.start}-{span.end}/{stored.size}"
    return streams.blocking(
        chunks, here.offload, status=206 if span else 200, headers=headers, media_type=BYTES
    )


async def receive(here: Platform, call: UploadCall, under_way: Sink[T]) -> T:
    """Write the body down as it comes, in pieces that are worth a trip to a thread.

    The object is there as a whole or not at all.

    Raises:
        Unauthenticated: The body is not the one that was signed, or the request was seen before.
    """

    def keep(piece: bytes) -> None:
        call.digest(piece)
        under_way.write(piece)

    def finish(piece: bytes) -> T:
        keep(piece)
        # Before it is finished: a body that is not the signed one leaves no object.
        call.check()
        return under_way.finish(call.once)

    pieces = _Pieces(here, keep)
    finishing: asyncio.Task[T] | None = None
    here.metrics.uploads.add()
    try:
        async with contextlib.aclosing(call.chunks()) as chunks:
            async for chunk in chunks:
                await pieces.add(chunk)
        finishing = asyncio.create_task(
            here.offload.long(call.caller.org, finish, await pieces.rest())
        )
        # A thread cannot be stopped: a request that is cancelled leaves it to end, and waits for it
        # below.
        return await asyncio.shield(finishing)
    finally:
        here.metrics.uploads.add(amount=-1)
        await pieces.settle()
        if finishing is not None:
            await asyncio.wait({finishing})  # nothing is closed under a thread that works with it
        await here.offload(under_way.abort)


class _Pieces:
    """Chunks gathered into pieces; one is kept on a thread while the next one comes."""

    def __init__(self, here: Platform, keep: Callable[[bytes], None]) -> None:
        self._here = here
        self._keep = keep
        self._chunks: list[bytes] = []
        self._size = 0
        self._keeping: asyncio.Task[None] | None = None

    async def add(self, chunk: bytes) -> None:
        """Take a chunk; raises what keeping an earlier one raised."""
        self._chunks.append(chunk)
        self._count(len(chunk))
        if self._size >= (_PIECE if self._here.gathered_bytes < _GATHERED_BYTES else _SMALL_PIECE):
            piece = self._take_piece()
            await self._finish_keeping()
            self._keeping = asyncio.create_task(self._here.offload.moving(self._keep, piece))

    async def rest(self) -> bytes:
        """What is not kept yet, once all the others are."""
        await self._finish_keeping()
        return self._take_piece()

    async def settle(self) -> None:
        """Wait until nothing is being kept any more, however that ends, and forget the rest."""
        self._take_piece()
        with contextlib.suppress(Exception):
            await self._finish_keeping()

    def _take_piece(self) -> bytes:
        self._count(-self._size)
        piece = b"".join(self._chunks)
        self._chunks.clear()
        return piece

    def _count(self, size: int) -> None:
        self._size += size
        self._here.gathered_bytes += size

    async def _finish_keeping(self) -> None:
        if self._keeping is not None:
            await asyncio.shield(
                self._keeping
            )  # whoever is cancelled must not leave a thread that writes
            self._keeping = None


def etag(stored: StoredObject) -> Mapping[str, str]:
    """The header that names this version of the object."""
    return {"ETag": f'"{stored.etag}"'}


def single_etag(if_match: str | None) -> str | None:
    """The version that a header ``If-Match`` asks for; ``None`` for any.

    Raises:
        InvalidRequest: The header is neither ``*`` nor one ETag in quotes.
    """
    if if_match is None or if_match.strip() == "*":
        return None
    found = re.fullmatch(r'\s*"([!#-~]{1,200})"\s*', if_match)
    if found is None:
        raise common.refuse(
            "If-Match", if_match[:200], 'one ETag in quotes, such as "1f-2a-3b", or *'
        )
    return found[1]


def wants_digest(header: str | None) -> bool:
    """Whether ``Want-Repr-Digest`` (RFC 9530) asks for a SHA-256."""
    return header is not None and re.search(r"sha-256\s*=\s*[1-9]", header) is not None


class Sink(Protocol[Kept_co]):
    """What takes in a body: an object, or a part of one."""

    def write(self, chunk: bytes) -> None:
        """Add bytes."""

    def finish(self, once: Once | None) -> Kept_co:
        """Keep what was written."""

    def abort(self) -> None:
        """Forget what was written; harmless after ``finish``."""


class Closable(Iterator[bytes]):
    """Chunks that can be let go of, whatever store they come from."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks

    def __next__(self) -> bytes:
        return next(self._chunks)

    def close(self) -> None:
        """Let go of what is behind them."""
        if (close := getattr(self._chunks, "close", None)) is not None:
            close()


def _part(  # noqa: PLR0917 - an object, and the three headers that choose what of it
    here: Platform,
    org: str,
    bucket: str,
    key: str,
    range_header: str,
    if_match: str | None,
    if_range: str | None,
) -> tuple[StoredObject, ranges.Span | None, Closable]:
    """The range of one version of the object: should it be replaced in between by another one,
    look again.
    """
    before = here.storage.head(org, bucket, key)
    while True:
        # A version that ``If-Match`` does not name is answered 412, also if the range lies outside
        # of it: RFC 9110, section 13.2.2, puts the conditions before the range.
        whole = not ranges.applies(if_range, before.etag) or (
            if_match is not None and not _matches(if_match, before)
        )
        span = None if whole else ranges.parse(range_header, before.size)
        start, length = (span.start, span.length) if span else (0, None)
        stored, chunks = here.storage.read(org, bucket, key, start=start, length=length)
        if (stored.size, stored.etag) == (before.size, before.etag):
            return stored, span, Closable(chunks)
        Closable(chunks).close()
        before = stored


def _headers(stored: StoredObject) -> dict[str, str]:
    headers = {
        **etag(stored),
        "Last-Modified": format_datetime(stored.modified, usegmt=True),
        **_NEVER_A_PAGE,
    }
    if stored.sha256:
        headers["Repr-Digest"] = (
            f"sha-256=:{base64.b64encode(bytes.fromhex(stored.sha256)).decode()}:"
        )
    return headers


def _matches(header: str, stored: StoredObject) -> bool:
    return header.strip() == "*" or f'"{stored.etag}"' in [tag.strip() for tag in header.split(",")]


def _precondition_failed(header: str, stored: StoredObject) -> Response:
    problem = Conflict(
        f'the object is another one by now: its ETag is "{stored.etag}"',
        field="If-Match",
        value=header[:200],
        hint="begin anew",
    )
    return errors.refusal(412, problem.document(), etag(stored))


def _out_of_range(error: ranges.Unsatisfiable) -> Response:
    document = common.refuse(
        "Range", error.range_header, f"a range within {error.size} bytes"
    ).document()
    return errors.refusal(416, document, {"Content-Range": f"bytes */{error.size}"})
