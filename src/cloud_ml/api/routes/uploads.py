"""``/api/v1/storage/-/uploads``: objects that come in several requests and survive
interruptions.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from cloud_ml.api import content, documents
from cloud_ml.api.auth import Signed, SignedUpload
from cloud_ml.api.openapi import OBJECT_BODY, answers, body_of
from cloud_ml.api.routes import CHECKED, Here
from cloud_ml.models import codec
from cloud_ml.models.storage.objects import (
    BeginUpload,
    CompleteUpload,
    ReceivedBytes,
    StoredObject,
    UploadInParts,
    UploadPage,
    UploadPart,
)

router = APIRouter(
    prefix="/api/v1/storage/-/uploads",
    tags=["storage"],
    default_response_class=Response,
    dependencies=CHECKED,
)


@router.get("/{bucket}", responses=answers(UploadPage))
async def list_uploads(here: Here, call: Signed, bucket: str) -> Response:
    """Uploads that are under way."""
    return documents.answer(await here.offload.long(call.org, here.uploads.all, call.org, bucket))


@router.post(
    "/{bucket}",
    status_code=201,
    responses=answers(UploadInParts, 201),
    openapi_extra=body_of(BeginUpload),
)
async def begin(here: Here, call: Signed, bucket: str) -> Response:
    """Begin an upload. With a declared digest or a resume token, one that is under way is found
    again.
    """
    body = codec.decode(BeginUpload, documents.read_object(call.body))
    client = call.caller.access_key
    begun = await here.offload.long(
        call.org, here.uploads.begin, call.org, bucket, body, client=client, once=call.once
    )
    return documents.answer(begun, 201)


@router.get("/{bucket}/{upload}", responses=answers(UploadInParts))
async def describe(here: Here, call: Signed, bucket: str, upload: str) -> Response:
    """An upload and the parts that have arrived."""
    return documents.answer(await here.offload(here.uploads.get, call.org, bucket, upload))


@router.put(
    "/{bucket}/{upload}/parts/{number}", responses=answers(UploadPart), openapi_extra=OBJECT_BODY
)
async def put_part(
    here: Here, call: SignedUpload, bucket: str, upload: str, number: int
) -> Response:
    """Send a part, from number 1 on, in any order, again if need be; the answer has its digest."""
    org = call.caller.org
    under_way = await here.offload.long(org, here.uploads.part, org, bucket, upload, number)
    return documents.answer(await content.receive(here, call, under_way))


@router.patch("/{bucket}/{upload}", responses=answers(ReceivedBytes), openapi_extra=OBJECT_BODY)
async def append(  # noqa: PLR0917
    here: Here,
    call: SignedUpload,
    bucket: str,
    upload: str,
    offset: Annotated[int, Query(ge=0)],
    sha256: str,
) -> Response:
    """Append a segment that begins at byte ``offset``. ``sha256`` is the digest of all bytes up to
    its end.

    409 where what was received ends elsewhere, 503 while another segment is on its way.
    """
    org = call.caller.org
    under_way = await here.offload.long(
        org, here.uploads.append, org, bucket, upload, offset, sha256
    )
    return documents.answer(await content.receive(here, call, under_way))


@router.post(
    "/{bucket}/{upload}/complete",
    responses=answers(StoredObject),
    openapi_extra=body_of(CompleteUpload),
)
async def complete(here: Here, call: Signed, bucket: str, upload: str) -> Response:
    """Make the object of all that has come, or of the listed parts; it appears as a whole."""
    completion = codec.decode(CompleteUpload, documents.read_object(call.body or b"{}"))
    stored = await here.offload.long(
        call.org, here.uploads.complete, call.org, bucket, upload, completion, once=call.once
    )
    return documents.answer(stored, 200, content.etag(stored))


@router.delete("/{bucket}/{upload}", status_code=204, responses=answers(None, 204))
async def give_up(here: Here, call: Signed, bucket: str, upload: str) -> Response:
    """Forget an upload and what has come of it."""
    await here.offload.long(call.org, here.uploads.drop, call.org, bucket, upload, once=call.once)
    return Response(None, 204)
