"""Objects in the storage protocol."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.responses import Response

from cloud_ml.api import content, documents, streams
from cloud_ml.api.fds import shapes
from cloud_ml.api.fds.fds_request import FdsRequest


async def head(request: FdsRequest) -> Response:
    """What is known of an object, in headers."""
    call = await request.signed()
    return await content.head(request.here, call.org, request.bucket, request.key)


async def metadata(request: FdsRequest) -> Response:
    """The same as the answer to a GET, whose own length must not be taken for the object's: so
    it has none.
    """
    call = await request.signed()
    stored = await request.here.offload(
        request.here.storage.head, call.org, request.bucket, request.key
    )
    nothing: Iterator[bytes] = iter(())
    return streams.blocking(
        nothing,
        request.here.offload,
        status=200,
        headers=shapes.metadata(stored),
        media_type=content.BYTES,
    )


async def download(request: FdsRequest) -> Response:
    """An object's bytes, or one range of them."""
    call = await request.signed()
    headers = request.http.headers
    return await content.send(
        request.here,
        call.org,
        request.bucket,
        request.key,
        range_=headers.get("range"),
        if_match=headers.get("if-match"),
        if_range=headers.get("if-range"),
    )


async def upload(request: FdsRequest) -> Response:
    """Store an object, in place of an older one. It is there as a whole or not at all."""
    call = await request.signed_upload()
    org = call.caller.org
    under_way = await request.here.offload.long(
        org, request.here.storage.upload, org, request.bucket, request.key
    )
    stored = await content.receive(request.here, call, under_way)
    return documents.answer(shapes.put(call.caller, stored), headers=content.etag(stored))


async def delete(request: FdsRequest) -> Response:
    """Remove an object, for good: there is no trash."""
    call = await request.signed()
    await request.here.offload(
        request.here.storage.delete, call.org, request.bucket, request.key, once=call.once
    )
    return documents.answer({})
