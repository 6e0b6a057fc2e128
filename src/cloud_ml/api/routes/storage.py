"""``/api/v1/storage``: buckets and objects."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.responses import Response

from cloud_ml.api import content, documents, streams
from cloud_ml.api.auth import (
    Signed,
    SignedOrLinked,
    SignedOrLinkedUpload,
    SignedQuestion,
    SignedUpload,
)
from cloud_ml.api.openapi import OBJECT_BODY, answers, body_of, bytes_of
from cloud_ml.api.parameters import check_limit
from cloud_ml.api.routes import CHECKED, Here
from cloud_ml.models import codec, common
from cloud_ml.models.storage import batches
from cloud_ml.models.storage.objects import (
    BatchOutcomes,
    Bucket,
    BucketPage,
    BucketUsage,
    CopyObject,
    ObjectPage,
    ReadObjects,
    StorageUsage,
    StoredObject,
    UnnameableObjects,
)

router = APIRouter(
    prefix="/api/v1/storage",
    tags=["storage"],
    default_response_class=Response,
    dependencies=CHECKED,
)


@router.get("", responses=answers(BucketPage))
async def list_buckets(here: Here, call: Signed, org_id: str | None = None) -> Response:
    """The buckets of the caller's organisation."""

    def page() -> BucketPage:
        return BucketPage(items=here.storage.buckets(here.identities.scope(call.caller, org_id)))

    return documents.answer(await here.offload(page))


@router.get("/-/usage", responses=answers(StorageUsage))
async def usage(here: Here, call: Signed) -> Response:
    """What the caller's organisation stores, by bucket and in all. Figures may be a minute old."""
    return documents.answer(await here.offload.long(call.org, here.storage.usage, call.org))


@router.get("/-/usage/{bucket}", responses=answers(BucketUsage))
async def usage_of_bucket(here: Here, call: Signed, bucket: str, prefix: str = "") -> Response:
    """What a bucket holds under keys that start with ``prefix``."""
    return documents.answer(
        await here.offload.long(call.org, here.storage.usage_below, call.org, bucket, prefix)
    )


@router.post(
    "/-/copy",
    status_code=201,
    responses=answers(StoredObject, 201),
    openapi_extra=body_of(CopyObject),
)
async def copy(here: Here, call: Signed) -> Response:
    """Copy an object within the server; the copy is there as a whole or not at all."""
    body = codec.decode(CopyObject, documents.read_object(call.body))
    stored = await here.offload.long(call.org, here.storage.copy, call.org, body, once=call.once)
    return documents.answer(stored, 201, content.etag(stored))


@router.post("/-/batch/{bucket}", responses=answers(BatchOutcomes), openapi_extra=OBJECT_BODY)
async def upload_many(here: Here, call: SignedUpload, bucket: str) -> Response:
    """Store many small objects: for each a line of JSON (``key``, ``size``, ``sha256``), and then
    its bytes.

    Each is there as a whole or not at all, and has its own outcome in the answer.
    """
    under_way = await here.offload.long(
        call.caller.org, here.batches.upload, call.caller.org, bucket
    )
    return documents.answer(await content.receive(here, call, under_way))


@router.post(
    "/-/read/{bucket}", responses=bytes_of(batches.MEDIA_TYPE), openapi_extra=body_of(ReadObjects)
)
async def read_many(here: Here, call: SignedQuestion, bucket: str) -> Response:
    """Read many small objects: for each a line of JSON (``key``, ``size``, ``sha256``, ``etag``),
    and then its bytes.

    An object that cannot be read has ``error`` in its line, and no bytes.
    """
    keys = codec.decode(ReadObjects, documents.read_object(call.body)).keys
    pieces = await here.offload.long(call.org, here.batches.read, call.org, bucket, keys)
    return streams.blocking(
        pieces, here.offload, status=200, headers={}, media_type=batches.MEDIA_TYPE
    )


@router.get("/-/unnameable/{bucket}", responses=answers(UnnameableObjects))
async def list_unnameable(
    here: Here,
    call: Signed,
    bucket: str,
    *,
    prefix: str = "",
    delimiter: bool = False,
    limit: Annotated[int, Query(ge=1)] = 1000,
) -> Response:
    """Files of jobs whose paths can be no keys. Names have escapes; with ``delimiter``, those of
    one folder only.
    """
    check_limit(limit, here.settings.list_page_limit)
    found = await here.offload.long(
        call.org, here.storage.unnameable, call.org, bucket, prefix, deep=not delimiter, limit=limit
    )
    return documents.answer(found)


@router.delete("/-/unnameable/{bucket}/{name:path}", status_code=204, responses=answers(None, 204))
async def delete_unnameable(here: Here, call: Signed, bucket: str, name: str) -> Response:
    """Remove a file of a job whose path can be no key. ``name`` has escapes, as in the list."""
    await here.offload(here.storage.delete_unnameable, call.org, bucket, name, once=call.once)
    return Response(status_code=204)


@router.put("/{bucket}", status_code=201, responses=answers(Bucket, 201))
async def create_bucket(here: Here, call: Signed, bucket: str) -> Response:
    """Make a bucket; one that the organisation has already is success."""
    caller = call.caller
    made = await here.offload(
        here.storage.create_bucket, caller.organisation, bucket, owner=caller.user, once=call.once
    )
    return documents.answer(made, 201)


@router.delete("/{bucket}", responses=answers(Bucket))
async def delete_bucket(here: Here, call: Signed, bucket: str, force: bool = False) -> Response:
    """Remove an empty bucket; 409 while there are objects in it. With ``force``, everything in
    it goes too.
    """
    gone = await here.offload.long(
        call.org,
        here.storage.delete_bucket,
        call.caller.organisation,
        bucket,
        force=force,
        once=call.once,
    )
    return documents.answer(gone)


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
    """Objects in byte order of their keys; with ``delimiter``, folders stand for what is below
    them.
    """
    check_limit(limit, here.settings.list_page_limit)
    page = await here.offload.long(
        call.org,
        here.storage.list,
        call.org,
        bucket,
        prefix,
        delimiter=delimiter,
        after=after,
        limit=limit,
    )
    return documents.answer(page)


@router.head("/{bucket}/{key:path}", responses=bytes_of(content.BYTES))
async def head(
    here: Here,
    call: Signed,
    bucket: str,
    key: str,
    want_repr_digest: Annotated[str | None, Header()] = None,
) -> Response:
    """What is known of an object, in headers; ``Want-Repr-Digest: sha-256=1`` has its digest
    computed if need be.
    """
    return await content.head(
        here, call.org, bucket, key, digest=content.wants_digest(want_repr_digest)
    )


@router.get("/{bucket}/{key:path}", responses=bytes_of(content.BYTES))
async def download(
    here: Here,
    call: SignedOrLinked,
    bucket: str,
    key: str,
    *,
    range: Annotated[str | None, Header()] = None,  # noqa: A002
    if_match: Annotated[str | None, Header()] = None,
    if_range: Annotated[str | None, Header()] = None,
) -> Response:
    """An object's bytes, or one range of them; with ``If-Match``, of that version or none (412).

    With ``If-Range``, the range of that version (206), or all of the present one (200).
    """
    return await content.send(
        here, call.org, bucket, key, range_=range, if_match=if_match, if_range=if_range
    )


@router.put(
    "/{bucket}/{key:path}",
    status_code=201,
    responses=answers(StoredObject, 201),
    openapi_extra=OBJECT_BODY,
)
async def upload(
    here: Here,
    call: SignedOrLinkedUpload,
    bucket: str,
    key: str,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Store an object; ``If-None-Match: *`` only if there is none. It is there as a whole or not
    at all.
    """
    if if_none_match not in (None, "*"):
        raise common.refuse("If-None-Match", if_none_match, "*")
    org = call.caller.org
    under_way = await here.offload.long(
        org, here.storage.upload, org, bucket, key, only_if_absent=if_none_match is not None
    )
    stored = await content.receive(here, call, under_way)
    return documents.answer(stored, 201, content.etag(stored))


@router.delete("/{bucket}/{key:path}", responses=answers(StoredObject))
async def delete(
    here: Here,
    call: Signed,
    bucket: str,
    key: str,
    if_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Remove an object, with ``If-Match`` only that version of it (412); the answer says what it
    was.
    """
    etag = content.single_etag(if_match)
    return documents.answer(
        await here.offload(here.storage.delete, call.org, bucket, key, etag=etag, once=call.once)
    )
