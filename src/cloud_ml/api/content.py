"""The bytes of objects on their way in and out, for every surface that has them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from email.utils import format_datetime

from starlette.responses import Response

from cloud_ml.api import errors, ranges, streams
from cloud_ml.api.auth import UploadCall
from cloud_ml.api.platform import Platform
from cloud_ml.models import common
from cloud_ml.models.storage import StoredObject
from cloud_ml.usecases.storage import Upload

BYTES = "application/octet-stream"

_PIECE = 2**20
_NEVER_A_PAGE = {
    "Accept-Ranges": "bytes",
    "Content-Disposition": "attachment",
    "Content-Security-Policy": "sandbox",
}
"""What users store may be HTML: it must not run in the origin of the console."""


async def head(here: Platform, org: str, bucket: str, key: str) -> Response:
    """What is known of an object, in headers.

    Raises:
        NotFound: No such object.
    """
    stored = await here.offload(here.storage.head, org, bucket, key)
    return Response(None, 200, {**_headers(stored), "Content-Length": str(stored.size)}, media_type=BYTES)


async def send(here: Platform, org: str, bucket: str, key: str, asked: str | None) -> Response:
    """An object's bytes, or the one range of them that the header ``Range`` asks for.

    Raises:
        NotFound: No such object.
    """

    def begin() -> tuple[StoredObject, ranges.Span | None, Iterator[bytes]]:
        if asked is None:
            stored, chunks = here.storage.read(org, bucket, key)
            return stored, None, chunks
        return _part(here, org, bucket, key, asked)

    try:
        stored, span, chunks = await here.offload(begin)
    except ranges.Unsatisfiable as error:
        return _out_of_range(error)
    headers = _headers(stored) | {"Content-Length": str(span.length if span else stored.size)}
    if span:
        headers["Content-Range"] = f"bytes {span.start}-{span.end}/{stored.size}"
    return streams.blocking(chunks, here.offload, status=206 if span else 200, headers=headers, media_type=BYTES)


async def receive(here: Platform, call: UploadCall, under_way: Upload) -> StoredObject:
    """Write the body down as it comes, in pieces that are worth a trip to a thread.

    The object is there as a whole or not at all.

    Raises:
        Unauthenticated: The body is not the one that was signed, or the request was seen before.
    """

    def keep(piece: bytes) -> None:
        call.digest(piece)
        under_way.write(piece)

    def finish(piece: bytes) -> StoredObject:
        keep(piece)
        call.check()
        return under_way.finish(call.once)

    piece = bytearray()
    try:
        async with contextlib.aclosing(call.chunks()) as chunks:
            async for chunk in chunks:
                piece += chunk
                if len(piece) >= _PIECE:
                    await here.offload(keep, bytes(piece))
                    piece.clear()
        return await here.offload(finish, bytes(piece))
    finally:
        await here.offload(under_way.abort)


def etag(stored: StoredObject) -> Mapping[str, str]:
    """The header that names this version of the object."""
    return {"ETag": f'"{stored.etag}"'}


def _part(
    here: Platform, org: str, bucket: str, key: str, asked: str
) -> tuple[StoredObject, ranges.Span | None, Iterator[bytes]]:
    """The range of one version of the object: should it be replaced in between by a shorter one, look again."""
    size = here.storage.head(org, bucket, key).size
    while True:
        span = ranges.parse(asked, size)
        start, length = (span.start, span.length) if span else (0, None)
        stored, chunks = here.storage.read(org, bucket, key, start=start, length=length)
        if stored.size == size:
            return stored, span, chunks
        size = stored.size


def _headers(stored: StoredObject) -> dict[str, str]:
    return {**etag(stored), "Last-Modified": format_datetime(stored.modified, usegmt=True), **_NEVER_A_PAGE}


def _out_of_range(error: ranges.Unsatisfiable) -> Response:
    document = common.refuse("Range", error.asked, f"a range within {error.size} bytes").document()
    return errors.refusal(416, document, {"Content-Range": f"bytes */{error.size}"})
