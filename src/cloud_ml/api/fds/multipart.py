"""Uploads in parts in the storage protocol: its client sends objects of 20 MB and more like
that.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from cloud_ml.api import content, documents
from cloud_ml.api.fds import shapes
from cloud_ml.api.fds.fds_request import FdsRequest
from cloud_ml.errors import Conflict
from cloud_ml.models import common
from cloud_ml.models.storage.objects import BeginUpload, CompleteUpload, UploadPart
from cloud_ml.objects.multipart import PARTS

_LIST = "uploadPartResultList"


async def initiate(request: FdsRequest) -> Response:
    """Begin an upload; each call begins another one."""
    call = await request.signed()
    request.check_headers()
    begun = await request.here.offload.long(
        call.org,
        request.here.uploads.begin,
        call.org,
        request.bucket,
        BeginUpload(key=request.key),
        once=call.once,
    )
    return documents.answer(
        {"bucketName": begun.bucket, "objectName": begun.key, "uploadId": begun.id}
    )


async def put_part(request: FdsRequest) -> Response:
    """Take in a part."""
    call = await request.signed_upload()
    number = common.check_count("partNumber", request.query["partNumber"], most=PARTS)
    org = call.caller.org
    under_way = await request.here.offload.long(
        org,
        request.here.uploads.part,
        org,
        request.bucket,
        request.query["uploadId"],
        number,
        key=request.key,
    )
    part = await content.receive(request.here, call, under_way)
    return documents.answer({"partNumber": part.number, "etag": part.sha256, "partSize": part.size})


async def complete(request: FdsRequest) -> Response:
    """Make the object of the parts that the client lists."""
    call = await request.signed()
    request.check_headers()
    completion = CompleteUpload(parts=_parts(documents.read_object(call.body)))
    stored = await request.here.offload.long(
        call.org,
        request.here.uploads.complete,
        call.org,
        request.bucket,
        request.query["uploadId"],
        completion,
        key=request.key,
        once=call.once,
    )
    return documents.answer(shapes.put(call.caller, stored), headers=content.etag(stored))


async def abort(request: FdsRequest) -> Response:
    """Give an upload up."""
    call = await request.signed()
    await request.here.offload.long(
        call.org,
        request.here.uploads.drop,
        call.org,
        request.bucket,
        request.query["uploadId"],
        key=request.key,
        once=call.once,
    )
    return documents.answer({})


def _parts(document: dict[str, Any]) -> list[UploadPart]:
    listed = document.get(_LIST)
    if not isinstance(listed, list) or len(listed) > PARTS:
        raise common.refuse(_LIST, type(listed).__name__, f"a list of at most {PARTS} parts")
    found = [_part(one) for one in listed]
    found.sort(key=lambda part: part.number)
    if len({part.number for part in found}) != len(found):
        raise Conflict("a part is listed twice", field=_LIST)
    return found


def _part(one: Any) -> UploadPart:
    if not isinstance(one, dict) or not isinstance(one.get("etag"), str):
        raise common.refuse(
            _LIST, one, "objects with partNumber, etag and partSize, as they were answered"
        )
    number = common.check_count("partNumber", one.get("partNumber"), most=PARTS)
    size = common.check_count("partSize", one.get("partSize"), least=0, most=2**53)
    return UploadPart(number=number, size=size, sha256=one["etag"])
