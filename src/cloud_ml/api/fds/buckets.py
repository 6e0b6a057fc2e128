"""Buckets in the storage protocol."""

from __future__ import annotations

from starlette.responses import Response

from cloud_ml.api import documents
from cloud_ml.api.fds import shapes
from cloud_ml.api.fds.asked import Asked
from cloud_ml.errors import InvalidRequest, NotFound
from cloud_ml.models import common
from cloud_ml.models.storage.objects import Bucket

_USUAL_PAGE = 1000


async def list_buckets(asked: Asked) -> Response:
    """The buckets of the caller's organisation."""
    call = await asked.signed()
    found = await asked.here.offload(asked.here.storage.buckets, call.org)
    return documents.answer(shapes.buckets(call.caller, found))


async def exists(asked: Asked) -> Response:
    """Whether there is such a bucket, by the status."""
    await _find(asked)
    return Response(None, 200)


async def describe(asked: Asked) -> Response:
    """What is known of a bucket."""
    return documents.answer(shapes.bucket(await _find(asked)))


async def create(asked: Asked) -> Response:
    """Make a bucket; one that the organisation has already is success.

    Raises:
        InvalidRequest: There is a body. Libraries rewrite an upload to the key ``.`` to such a
            request.
    """
    call = await asked.signed()
    if call.body:
        raise InvalidRequest(
            f"{asked.bucket[:63]} is a bucket; an upload needs the key of an object",
            field="body",
            allowed="nothing, to make a bucket",
        )
    made = await asked.here.offload(
        asked.here.storage.create_bucket,
        call.caller.organisation,
        asked.bucket,
        owner=call.caller.user,
        once=call.once,
    )
    return documents.answer(shapes.bucket(made))


async def list_objects(asked: Asked) -> Response:
    """Objects in byte order of their keys; with the delimiter '/', folders stand for what is
    below them.
    """
    call = await asked.signed()
    query = asked.query
    delimiter = query.get("delimiter", "")
    if delimiter not in ("", "/"):
        raise common.refuse("delimiter", delimiter[:40], "'/' or nothing")
    most = asked.here.settings.list_page_limit
    wanted = common.check_count(
        "maxKeys", query.get("maxKeys", str(_USUAL_PAGE)), least=1, most=10**9
    )
    page = await asked.here.offload.long(
        call.org,
        asked.here.storage.list,
        call.org,
        asked.bucket,
        query["prefix"],
        delimiter=bool(delimiter),
        after=query.get("marker", ""),
        limit=min(wanted, most),
    )
    return documents.answer(shapes.listing(call.caller, asked.bucket, query, wanted, page))


async def _find(asked: Asked) -> Bucket:
    """The bucket that is named.

    Raises:
        NotFound: There is none, or it is somebody else's.
    """
    call = await asked.signed()
    for bucket in await asked.here.offload(asked.here.storage.buckets, call.org):
        if bucket.name == asked.bucket:
            return bucket
    raise NotFound(
        f"there is no bucket {asked.bucket[:63]}", field="bucket", value=asked.bucket[:63]
    )
