"""Artifacts of runs: objects below ``mlflow/RUN/artifacts/`` in the organisation's default bucket."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Header
from starlette.responses import Response

from cloud_ml.api import content, documents
from cloud_ml.api.auth import Call, Signed, SignedUpload
from cloud_ml.api.mlflow.fields import RequestFields
from cloud_ml.api.platform import Platform
from cloud_ml.api.routes import Here
from cloud_ml.domain.tracking.artifacts import MODELS, artifact_key, artifact_uri
from cloud_ml.errors import Conflict
from cloud_ml.usecases.access.identities import Identity

PROXY = "/mlflow/api/2.0/mlflow-artifacts/artifacts"
_PAGE, _MOST_FILES = 1000, 10_000
Answer = Mapping[str, Any]

router = APIRouter(default_response_class=Response, include_in_schema=False)


def list_artifacts(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """The files and folders of a run, below a path."""
    run = here.runs.find(call.org, fields.text("run_id", "run_uuid"))
    path = fields.text("path", default="").strip("/")
    whole = f"{run.uid}/artifacts/{path}" if path else f"{run.uid}/artifacts"
    files = [
        {**one, "path": f"{path}/{one['path']}" if path else one["path"]}
        for one in _files(here, call.caller, whole)
    ]
    return {"root_uri": artifact_uri(run.uid), "files": files}


@router.get(PROXY)
async def list_files(here: Here, call: Signed, path: str = "") -> Response:
    """The files and folders below a path."""
    files = await here.offload.long(call.org, _files, here, call.caller, path.strip("/"))
    return documents.answer({"files": files})


@router.get(PROXY + "/{path:path}")
async def download_artifact(
    here: Here,
    call: Signed,
    path: str,
    *,
    range: Annotated[str | None, Header()] = None,  # noqa: A002
) -> Response:
    """The bytes of a file."""
    bucket, key = await here.offload(place_of, here, call.caller, path)
    return await content.send(here, call.org, bucket, key, range_=range)


@router.put(PROXY + "/{path:path}")
async def upload_artifact(here: Here, call: SignedUpload, path: str) -> Response:
    """Store a file. It is there as a whole or not at all."""
    bucket, key = await here.offload(place_of, here, call.caller, path)
    org = call.caller.org
    under_way = await here.offload.long(org, here.storage.upload, org, bucket, key)
    await content.receive(here, call, under_way)
    return documents.answer({})


@router.delete(PROXY + "/{path:path}")
async def delete_artifact(here: Here, call: Signed, path: str) -> Response:
    """Remove a file."""
    bucket, key = await here.offload(place_of, here, call.caller, path)
    await here.offload(here.storage.delete, call.org, bucket, key, once=call.once)
    return documents.answer({})


def place_of(
    here: Platform, caller: Identity, path: str, *, is_folder: bool = False
) -> tuple[str, str]:
    """The bucket and the key of a file of a run of the caller's organisation."""
    folder, owner, key = artifact_key(path, is_folder=is_folder)
    if folder == MODELS:
        here.logged_models.find(caller.org, owner)
    else:
        here.runs.find(caller.org, owner)
    bucket = caller.organisation.default_bucket
    if not bucket:
        raise Conflict(
            f"{caller.org} has no default bucket, where artifacts of runs are stored",
            field="path", allowed="artifacts of an organisation with a default bucket",
        )  # fmt: skip
    return bucket, key


def _files(here: Platform, caller: Identity, path: str) -> list[dict[str, Any]]:
    bucket, key = place_of(here, caller, path, is_folder=True)
    return list(_below(here, caller.org, bucket, key.rstrip("/") + "/"))


def _below(here: Platform, org: str, bucket: str, prefix: str) -> Iterator[dict[str, Any]]:
    after, count = "", 0
    while count < _MOST_FILES:
        page = here.storage.list(org, bucket, prefix, delimiter=True, after=after, limit=_PAGE)
        for folder in page.folders:
            yield {"path": folder.removeprefix(prefix).rstrip("/"), "is_dir": True}
        for one in page.objects:
            yield {"path": one.key.removeprefix(prefix), "is_dir": False, "file_size": one.size}
        count += len(page.folders) + len(page.objects)
        if page.next is None:
            return
        after = page.next
