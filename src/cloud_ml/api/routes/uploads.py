"""``/api/v1/storage/-/uploads``: objects that come in parts and survive interruptions."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from cloud_ml.api import content, documents
from cloud_ml.api.auth import Signed, SignedUpload
from cloud_ml.api.openapi import OBJECT_BODY, answers, body_of
from cloud_ml.api.routes import CHECKED, Here
from cloud_ml.models import codec
from cloud_ml.models.storage import BeginUpload, CompleteUpload, StoredObject, UploadInParts, UploadPage, UploadPart

router = APIRouter(
    prefix="/api/v1/storage/-/uploads", tags=["storage"], default_response_class=Response, dependencies=CHECKED
)


@router.get("/{bucket}", responses=answers(UploadPage))
async def list_uploads(here: Here, call: Signed, bucket: str) -> Response:
    """Uploads in parts that are under way."""
    return documents.answer(await here.offload.long(call.org, here.uploads.all, call.org, bucket))


@router.post("/{bucket}", status_code=201, responses=answers(UploadInParts, 201), openapi_extra=body_of(BeginUpload))
async def begin(here: Here, call: Signed, bucket: str) -> Response:
    """Begin an upload in parts. For a declared digest, one that is under way for the same content is found again."""
    wanted = codec.decode(BeginUpload, documents.read_object(call.body))
    begun = await here.offload.long(call.org, here.uploads.begin, call.org, bucket, wanted, once=call.once)
    return documents.answer(begun, 201)


@router.get("/{bucket}/{upload}", responses=answers(UploadInParts))
async def describe(here: Here, call: Signed, bucket: str, upload: str) -> Response:
    """An upload and the parts that have arrived."""
    return documents.answer(await here.offload(here.uploads.get, call.org, bucket, upload))


@router.put("/{bucket}/{upload}/parts/{number}", responses=answers(UploadPart), openapi_extra=OBJECT_BODY)
async def put_part(here: Here, call: SignedUpload, bucket: str, upload: str, number: int) -> Response:
    """Send a part, from number 1 on, in any order, again if need be; the answer has its digest."""
    org = call.caller.org
    under_way = await here.offload.long(org, here.uploads.part, org, bucket, upload, number)
    return documents.answer(await content.receive(here, call, under_way))


@router.post("/{bucket}/{upload}/complete", responses=answers(StoredObject), openapi_extra=body_of(CompleteUpload))
async def complete(here: Here, call: Signed, bucket: str, upload: str) -> Response:
    """Make the object of all parts, or of those that are listed; it appears as a whole."""
    said = codec.decode(CompleteUpload, documents.read_object(call.body or b"{}"))
    stored = await here.offload.long(call.org, here.uploads.complete, call.org, bucket, upload, said, once=call.once)
    return documents.answer(stored, 200, content.etag(stored))


@router.delete("/{bucket}/{upload}", status_code=204, responses=answers(None, 204))
async def give_up(here: Here, call: Signed, bucket: str, upload: str) -> Response:
    """Forget an upload and its parts."""
    await here.offload.long(call.org, here.uploads.drop, call.org, bucket, upload, once=call.once)
    return Response(None, 204)
