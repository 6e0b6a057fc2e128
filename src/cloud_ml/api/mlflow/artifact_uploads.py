"""Large artifacts that come in parts, several at a time: ``mlflow-artifacts/mpu``.

MLflow's own server gives out addresses of an object store that are signed. Here the parts come to
this server, with the credential that began the upload.

A client whose answer was lost completes its upload once more: MLflow's does so after 120 seconds,
which the parts of a large file may take. The upload is over then. So the ETag of a part is its digest
and its size, by which the file is known again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import Response

from cloud_ml.api import content, documents
from cloud_ml.api.auth import Call, Signed, SignedUpload
from cloud_ml.api.mlflow.artifacts import place_of
from cloud_ml.api.mlflow.fields import RequestFields
from cloud_ml.api.platform import Platform
from cloud_ml.api.routes import Here
from cloud_ml.errors import Conflict, NotFound
from cloud_ml.models import common
from cloud_ml.models.storage.objects import BeginUpload, CompleteUpload, UploadPart
from cloud_ml.objects.multipart import PARTS

UPLOADS = "/mlflow/api/2.0/mlflow-artifacts/mpu"
_CREDENTIALS = ("bearer ", "basic ")
_LARGEST_ANSWER = 8 * 2**20
"""The address and the credential of each part take so many bytes at most: a path may be long."""
_ETAG = re.compile(r"([0-9a-f]{64})-([0-9]{1,15})")

router = APIRouter(default_response_class=Response, include_in_schema=False)


@router.post(UPLOADS + "/create/{folder:path}")
async def begin(here: Here, call: Signed, request: Request, folder: str) -> Response:
    """Begin an upload of ``num_parts`` parts; the answer says where each is to be sent."""
    fields = RequestFields.read(request, call.body)
    credential = request.headers.get("authorization", "")
    # A signature is that of one request: who signs has to sign each part.
    headers = {"Authorization": credential} if credential.lower().startswith(_CREDENTIALS) else {}
    whole = _path_of(folder, fields)
    size = len(str(request.base_url)) + len(quote(whole)) + len(credential) + len(UPLOADS) + 100
    most = min(PARTS, max(1, _LARGEST_ANSWER // size))
    count = fields.integer("num_parts", 1)
    if not 1 <= count <= most:
        raise common.refuse("num_parts", count, f"a whole number from 1 to {most}")
    bucket, key = await here.offload(place_of, here, call.caller, whole)
    begun = await here.offload.long(
        call.org,
        here.uploads.begin,
        call.org,
        bucket,
        BeginUpload(key=key),
        client=call.caller.access_key,
        once=call.once,
    )
    there = f"{str(request.base_url).rstrip('/')}{UPLOADS}/parts/{begun.id}"
    credentials = [
        {
            "url": f"{there}/{number}/{quote(whole)}",
            "part_number": number,
            "headers": headers,
        }
        for number in range(1, count + 1)
    ]
    return documents.answer({"upload_id": begun.id, "credentials": credentials})


@router.put(UPLOADS + "/parts/{upload}/{number}/{path:path}")
async def send_part(
    here: Here, call: SignedUpload, upload: str, number: int, path: str
) -> Response:
    """Take in a part, in any order, again if need be."""
    org = call.caller.org
    bucket, key = await here.offload(place_of, here, call.caller, path)
    under_way = await here.offload.long(
        org, here.uploads.part, org, bucket, upload, number, key=key
    )
    part = await content.receive(here, call, under_way)
    return documents.answer({}, 200, {"ETag": f'"{part.sha256}-{part.size}"'})


@router.post(UPLOADS + "/complete/{folder:path}")
async def complete(here: Here, call: Signed, request: Request, folder: str) -> Response:
    """Make the file of its parts. It is there as a whole or not at all. To ask again is harmless."""
    fields = RequestFields.read(request, call.body)
    await here.offload.long(call.org, _complete, here, call, folder, fields)
    return documents.answer({})


@router.post(UPLOADS + "/abort/{folder:path}")
async def give_up(here: Here, call: Signed, request: Request, folder: str) -> Response:
    """Forget an upload and what has come of it."""
    fields = RequestFields.read(request, call.body)
    bucket, key = await here.offload(place_of, here, call.caller, _path_of(folder, fields))
    await here.offload.long(
        call.org,
        here.uploads.drop,
        call.org,
        bucket,
        fields.text("upload_id"),
        key=key,
        once=call.once,
    )
    return documents.answer({})


def _complete(here: Platform, call: Call, folder: str, fields: RequestFields) -> None:
    bucket, key = place_of(here, call.caller, _path_of(folder, fields))
    upload, sent = fields.text("upload_id"), fields.objects("parts", most=PARTS)
    try:
        known = {part.number: part for part in here.uploads.get(call.org, bucket, upload).parts}
        chosen = [_chosen(known, one) for one in sent]
        if not chosen:
            raise common.refuse("parts", [], "the parts that were sent")
        completion = CompleteUpload(parts=chosen)
        here.uploads.complete(call.org, bucket, upload, completion, key=key, once=call.once)
    except NotFound:
        if not _has_parts(here, call.org, bucket, key, sent):
            raise


def _chosen(known: Mapping[int, UploadPart], part: RequestFields) -> UploadPart:
    """The part that came, if it is the one that the client has sent."""
    number, etag = part.integer("part_number"), part.text("etag").strip('"')
    found = known.get(number)
    if found is None or etag.partition("-")[0] != found.sha256:
        raise Conflict(
            f"part {number} did not arrive as it was sent", field="parts", value=number,
            allowed="parts that were sent, with the ETag of their answers",
        )  # fmt: skip
    return found


def _has_parts(
    here: Platform, org: str, bucket: str, key: str, sent: Sequence[RequestFields]
) -> bool:
    """Whether an object has just the parts that the client has sent."""
    etags = [_ETAG.fullmatch(part.text("etag").strip('"')) for part in sent]
    parts = [(etag[1], int(etag[2])) for etag in etags if etag is not None]
    if not parts or len(parts) < len(sent):
        return False
    try:
        stored, chunks = here.storage.read(org, bucket, key)
    except NotFound:
        return False
    with closing(content.Closable(chunks)):
        return stored.size == sum(size for _, size in parts) and _are_parts(chunks, parts)


def _are_parts(chunks: Iterator[bytes], parts: Sequence[tuple[str, int]]) -> bool:
    """Whether bytes are made of parts with these digests and sizes."""
    there = memoryview(b"")
    for sha256, size in parts:
        digest, left = hashlib.sha256(), size
        while left:
            there = there or memoryview(next(chunks, b""))
            if not there:
                return False
            digest.update(there[:left])
            left, there = max(0, left - len(there)), there[left:]
        if digest.hexdigest() != sha256:
            return False
    return True


def _path_of(folder: str, fields: RequestFields) -> str:
    """The path of the artifact: the client tells its folder, and the name of its own file."""
    path = fields.text("path")
    if not (name := path.replace("\\", "/").rpartition("/")[2]):
        raise common.refuse("path", path[:200], "the path of a file")
    return f"{folder.strip('/')}/{name}"
