"""Objects in the storage protocol."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.responses import Response

from cloud_ml.api import content, documents, streams
from cloud_ml.api.fds import shapes
from cloud_ml.api.fds.asked import Asked


async def head(asked: Asked) -> Response:
    """What is known of an object, in headers."""
    call = await asked.signed()
    return await content.head(asked.here, call.org, asked.bucket, asked.key)


async def metadata(asked: Asked) -> Response:
    """The same as the answer to a GET, whose own length must not be taken for the object's: so
    it has none.
    """
    call = await asked.signed()
    stored = await asked.here.offload(asked.here.storage.head, call.org, asked.bucket, asked.key)
    nothing: Iterator[bytes] = iter(())
    return streams.blocking(
        nothing,
        asked.here.offload,
        status=200,
        headers=shapes.metadata(stored),
        media_type=content.BYTES,
    )


async def download(asked: Asked) -> Response:
    """An object's bytes, or one range of them."""
    call = await asked.signed()
    headers = asked.request.headers
    return await content.send(
        asked.here,
        call.org,
        asked.bucket,
        asked.key,
        range_=headers.get("range"),
        if_match=headers.get("if-match"),
        if_range=headers.get("if-range"),
    )


async def upload(asked: Asked) -> Response:
    """Store an object, in place of an older one. It is there as a whole or not at all."""
    call = await asked.signed_upload()
    org = call.caller.org
    under_way = await asked.here.offload.long(
        org, asked.here.storage.upload, org, asked.bucket, asked.key
    )
    stored = await content.receive(asked.here, call, under_way)
    return documents.answer(shapes.put(call.caller, stored), headers=content.etag(stored))


async def delete(asked: Asked) -> Response:
    """Remove an object, for good: there is no trash."""
    call = await asked.signed()
    await asked.here.offload(
        asked.here.storage.delete, call.org, asked.bucket, asked.key, once=call.once
    )
    return documents.answer({})
