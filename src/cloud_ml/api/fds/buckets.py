"""Buckets in the storage protocol."""

from __future__ import annotations

from starlette.responses import Response

from cloud_ml.api import documents
from cloud_ml.api.fds import shapes
from cloud_ml.api.fds.fds_request import FdsRequest
from cloud_ml.errors import InvalidRequest, NotFound
from cloud_ml.models import common
from cloud_ml.models.storage.objects import Bucket

_USUAL_PAGE = 1000


async def list_buckets(request: FdsRequest) -> Response:
    """The buckets of the caller's organisation."""
    call = await request.signed()
    found = await request.here.offload(request.here.storage.buckets, call.org)
    return documents.answer(shapes.buckets(call.caller, found))


async def exists(request: FdsRequest) -> Response:
    """Whether there is such a bucket, by the status."""
    await _find(request)
    return Response(None, 200)


async def describe(request: FdsRequest) -> Response:
    """What is known of a bucket."""
    return documents.answer(shapes.bucket(await _find(request)))


async def create(request: FdsRequest) -> Response:
    """Make a bucket; one that the organisation has already is success.

    Raises:
        InvalidRequest: There is a body. Libraries rewrite an upload to the key ``.`` to such a
            request.
    """
    call = await request.signed()
    if call.body:
        raise InvalidRequest(
            f"{request.bucket[:63]} is a bucket; an upload needs the key of an object",
            field="body",
            allowed="nothing, to make a bucket",
        )
    made = await request.here.offload(
        request.here.storage.create_bucket,
        call.caller.organisation,
        request.bucket,
        owner=call.caller.user,
        once=call.once,
    )
    return documents.answer(shapes.bucket(made))


async def list_objects(request: FdsRequest) -> Response:
    """Objects in byte order of their keys; with the delimiter '/', folders stand for what is
    below them.
    """
    call = await request.signed()
    query = request.query
    delimiter = query.get("delimiter", "")
    if delimiter not in ("", "/"):
        raise common.refuse("delimiter", delimiter[:40], "'/' or nothing")
    most = request.here.settings.list_page_limit
    max_keys = common.check_count(
        "maxKeys", query.get("maxKeys", str(_USUAL_PAGE)), least=1, most=10**9
    )
    page = await request.here.offload.long(
        call.org,
        request.here.storage.list,
        call.org,
        request.bucket,
        query["prefix"],
        delimiter=bool(delimiter),
        after=query.get("marker", ""),
        limit=min(max_keys, most),
    )
    return documents.answer(shapes.listing(call.caller, request.bucket, query, max_keys, page))


async def _find(request: FdsRequest) -> Bucket:
    """The bucket that is named.

    Raises:
        NotFound: There is none, or it is somebody else's.
    """
    call = await request.signed()
    for bucket in await request.here.offload(request.here.storage.buckets, call.org):
        if bucket.name == request.bucket:
            return bucket
    raise NotFound(
        f"there is no bucket {request.bucket[:63]}", field="bucket", value=request.bucket[:63]
    )
