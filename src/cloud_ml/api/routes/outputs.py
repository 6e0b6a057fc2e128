"""``/api/v1/jobs/{name}/outputs``: the files that a job left."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.responses import Response

from cloud_ml.api import content, documents
from cloud_ml.api.auth import Call, Signed
from cloud_ml.api.openapi import answers, bytes_of
from cloud_ml.api.parameters import check_limit
from cloud_ml.api.routes import CHECKED, Here
from cloud_ml.domain.jobs.kind import TrainJobRecord
from cloud_ml.models.jobs.outputs import OutputPage

router = APIRouter(
    prefix="/api/v1/jobs/{name}/outputs",
    tags=["jobs"],
    default_response_class=Response,
    dependencies=CHECKED,
)


@router.get("", responses=answers(OutputPage))
async def list_outputs(
    here: Here,
    call: Signed,
    name: str,
    *,
    after: Annotated[str, Query(max_length=1024)] = "",
    limit: Annotated[int, Query(ge=1)] = 1000,
    org_id: str | None = None,
) -> Response:
    """The files that a job left in its working directory, by path. They are stored when the job
    ends.
    """
    check_limit(limit, here.settings.list_page_limit)
    record = await _find(here, call, name, org_id)
    page = await here.offload.long(
        record.key.org, here.outputs.page, record, after=after, limit=limit
    )
    return documents.answer(page)


@router.get("/{path:path}", responses=bytes_of(content.BYTES))
async def download(
    here: Here,
    call: Signed,
    name: str,
    path: str,
    *,
    org_id: str | None = None,
    range: Annotated[str | None, Header()] = None,  # noqa: A002
    if_match: Annotated[str | None, Header()] = None,
    if_range: Annotated[str | None, Header()] = None,
) -> Response:
    """The bytes of one file, or one range of them."""
    record = await _find(here, call, name, org_id)
    uri = here.outputs.uri_of(record, path)
    return await content.send(
        here,
        record.key.org,
        uri.bucket,
        uri.key,
        range_=range,
        if_match=if_match,
        if_range=if_range,
    )


async def _find(here: Here, call: Call, name: str, org_id: str | None) -> TrainJobRecord:
    def find() -> TrainJobRecord:
        return here.jobs.find(here.identities.scope(call.caller, org_id), name)

    return await here.read(find)
