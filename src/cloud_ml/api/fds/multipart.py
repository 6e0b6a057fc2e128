"""Uploads in parts in the storage protocol: its client sends objects of 20 MB and more like
that.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from cloud_ml.api import content, documents
from cloud_ml.api.fds import shapes
from cloud_ml.api.fds.asked import Asked
from cloud_ml.errors import Conflict
from cloud_ml.models import common
from cloud_ml.models.storage.objects import BeginUpload, CompleteUpload, UploadPart
from cloud_ml.objects.multipart import PARTS

_LIST = "uploadPartResultList"


async def initiate(asked: Asked) -> Response:
    """Begin an upload; each call begins another one."""
    call = await asked.signed()
    asked.check_headers()
    begun = await asked.here.offload.long(
        call.org,
        asked.here.uploads.begin,
        call.org,
        asked.bucket,
        BeginUpload(key=asked.key),
        once=call.once,
    )
    return documents.answer(
        {"bucketName": begun.bucket, "objectName": begun.key, "uploadId": begun.id}
    )


async def put_part(asked: Asked) -> Response:
    """Take in a part."""
    call = await asked.signed_upload()
    number = common.check_count("partNumber", asked.query["partNumber"], most=PARTS)
    org = call.caller.org
    under_way = await asked.here.offload.long(
        org,
        asked.here.uploads.part,
        org,
        asked.bucket,
        asked.query["uploadId"],
        number,
        key=asked.key,
    )
    part = await content.receive(asked.here, call, under_way)
    return documents.answer({"partNumber": part.number, "etag": part.sha256, "partSize": part.size})


async def complete(asked: Asked) -> Response:
    """Make the object of the parts that the client lists."""
    call = await asked.signed()
    asked.check_headers()
    said = CompleteUpload(parts=_parts(documents.read_object(call.body)))
    stored = await asked.here.offload.long(
        call.org,
        asked.here.uploads.complete,
        call.org,
        asked.bucket,
        asked.query["uploadId"],
        said,
        key=asked.key,
        once=call.once,
    )
    return documents.answer(shapes.put(call.caller, stored), headers=content.etag(stored))


async def abort(asked: Asked) -> Response:
    """Give an upload up."""
    call = await asked.signed()
    await asked.here.offload.long(
        call.org,
        asked.here.uploads.drop,
        call.org,
        asked.bucket,
        asked.query["uploadId"],
        key=asked.key,
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
