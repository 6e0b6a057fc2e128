"""``/api/v1/storage``: buckets and objects."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from email.utils import format_datetime
from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.responses import Response

from cloud_ml.api import documents, errors, ranges, streams
from cloud_ml.api.auth import Signed, SignedUpload, UploadCall
from cloud_ml.api.openapi import OBJECT_BODY, answers, bytes_of
from cloud_ml.api.platform import Platform
from cloud_ml.api.routes import Here
from cloud_ml.models import common
from cloud_ml.models.storage import Bucket, BucketPage, ObjectPage, StoredObject
from cloud_ml.usecases.storage import Upload

router = APIRouter(prefix="/api/v1/storage", tags=["storage"], default_response_class=Response)

_BYTES = "application/octet-stream"
_PIECE = 2**20
_NEVER_A_PAGE = {
    "Accept-Ranges": "bytes",
    "Content-Disposition": "attachment",
    "Content-Security-Policy": "sandbox",
}
"""What users store may be HTML: it must not run in the origin of the console."""


@router.get("", responses=answers(BucketPage))
async def list_buckets(here: Here, call: Signed, org_id: str | None = None) -> Response:
    """The buckets of the caller's organisation."""

    def page() -> BucketPage:
        return BucketPage(items=here.storage.buckets(here.identities.scope(call.caller, org_id)))

    return documents.answer(await here.offload(page))


@router.put("/{bucket}", status_code=201, responses=answers(Bucket, 201))
async def create_bucket(here: Here, call: Signed, bucket: str) -> Response:
    """Make a bucket; one that the organisation has already is success."""
    made = await here.offload(here.storage.create_bucket, call.caller.organisation, bucket, once=call.once)
    return documents.answer(made, 201)


@router.get("/{bucket}", responses=answers(ObjectPage))
async def list_objects(
    here: Here,
    call: Signed,
    bucket: str,
    *,
    prefix: str = "",
    delimiter: bool = False,
    after: str = "",
    limit: Annotated[int, Query(ge=1)] = 1000,
) -> Response:
    """Objects in byte order of their keys; with ``delimiter``, folders stand for what is below them."""
    if limit > (most := here.settings.list_page_limit):
        raise common.refuse("limit", limit, f"1 to {most}")
    page = await here.offload(
        here.storage.list, call.org, bucket, prefix, delimiter=delimiter, after=after, limit=limit
    )
    return documents.answer(page)


@router.head("/{bucket}/{key:path}", responses=bytes_of(_BYTES))
async def head(here: Here, call: Signed, bucket: str, key: str) -> Response:
    """What is known of an object, in headers."""
    stored = await here.offload(here.storage.head, call.org, bucket, key)
    return Response(None, 200, {**_headers(stored), "Content-Length": str(stored.size)}, media_type=_BYTES)


@router.get("/{bucket}/{key:path}", responses=bytes_of(_BYTES))
async def download(
    here: Here,
    call: Signed,
    bucket: str,
    key: str,
    range: Annotated[str | None, Header()] = None,  # noqa: A002
) -> Response:
    """An object's bytes, or one range of them."""

    def begin() -> tuple[StoredObject, ranges.Span | None, Iterator[bytes]]:
        if range is None:
            return _whole(here, call.org, bucket, key)
        return _part(here, call.org, bucket, key, range)

    try:
        stored, span, chunks = await here.offload(begin)
    except ranges.Unsatisfiable as error:
        return _out_of_range(error)
    headers = _headers(stored) | {"Content-Length": str(span.length if span else stored.size)}
    if span:
        headers["Content-Range"] = f"bytes {span.start}-{span.end}/{stored.size}"
    return streams.blocking(chunks, here.offload, status=206 if span else 200, headers=headers, media_type=_BYTES)


@router.put("/{bucket}/{key:path}", status_code=201, responses=answers(StoredObject, 201), openapi_extra=OBJECT_BODY)
async def upload(
    here: Here, call: SignedUpload, bucket: str, key: str, if_none_match: Annotated[str | None, Header()] = None
) -> Response:
    """Store an object; ``If-None-Match: *`` only if there is none. It is there as a whole or not at all."""
    if if_none_match not in (None, "*"):
        raise common.refuse("If-None-Match", if_none_match, "*")
    under_way = await here.offload(
        here.storage.upload, call.caller.org, bucket, key, only_if_absent=if_none_match is not None
    )
    try:
        stored = await _receive(here, call, under_way)
    finally:
        await here.offload(under_way.abort)
    return documents.answer(stored, 201, {"ETag": _quoted(stored.etag)})


@router.delete("/{bucket}/{key:path}", responses=answers(StoredObject))
async def delete(here: Here, call: Signed, bucket: str, key: str) -> Response:
    """Remove an object; the answer says what it was."""
    return documents.answer(await here.offload(here.storage.delete, call.org, bucket, key, once=call.once))


async def _receive(here: Platform, call: UploadCall, under_way: Upload) -> StoredObject:
    """Write the body down as it comes, in pieces that are worth a trip to a thread."""

    def keep(piece: bytes) -> None:
        call.digest(piece)
        under_way.write(piece)

    def finish(piece: bytes) -> StoredObject:
        keep(piece)
        call.check()
        return under_way.finish(call.once)

    piece = bytearray()
    async with contextlib.aclosing(call.chunks()) as chunks:
        async for chunk in chunks:
            piece += chunk
            if len(piece) >= _PIECE:
                await here.offload(keep, bytes(piece))
                piece.clear()
    return await here.offload(finish, bytes(piece))


def _whole(here: Platform, org: str, bucket: str, key: str) -> tuple[StoredObject, None, Iterator[bytes]]:
    stored, chunks = here.storage.read(org, bucket, key)
    return stored, None, chunks


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
    return {
        "ETag": _quoted(stored.etag),
        "Last-Modified": format_datetime(stored.modified, usegmt=True),
        **_NEVER_A_PAGE,
    }


def _quoted(etag: str) -> str:
    return f'"{etag}"'


def _out_of_range(error: ranges.Unsatisfiable) -> Response:
    document = common.refuse("Range", error.asked, f"a range within {error.size} bytes").document()
    return errors.refusal(416, document, {"Content-Range": f"bytes */{error.size}"})
