"""TensorBoards: what is special to them. The rest is made from their description."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from cloud_ml.api import documents, streams
from cloud_ml.api.auth import Call, Signed
from cloud_ml.api.openapi import answers, bytes_of
from cloud_ml.api.platform import Platform
from cloud_ml.api.routes import CHECKED, Here
from cloud_ml.domain.tensorboards.spec import TensorBoardRecord
from cloud_ml.engines.abilities import LogView
from cloud_ml.models.tracking.tensorboard import TENSORBOARDS, OpenedTensorBoard
from cloud_ml.usecases.jobs.logs import Selection
from cloud_ml.usecases.tensorboards.tensorboards import open_tensorboard

router = APIRouter(
    prefix=TENSORBOARDS.path,
    tags=[TENSORBOARDS.plural],
    default_response_class=Response,
    dependencies=CHECKED,
)


@router.post("/{name}/open", responses=answers(OpenedTensorBoard))
async def open_in_browser(here: Here, call: Signed, name: str) -> Response:
    """A URL that opens the TensorBoard in a browser, once and within a minute. The browser then
    has a cookie for this TensorBoard alone, which works as long as the caller's key does.
    """
    record = await here.offload(_find, here, call, name, None)
    if call.once is not None:  # the URL is for one browser: a repeated request gets none
        await here.offload(here.store.remember, call.once)
    await here.application_reachable(record.key.uid)
    opened = open_tensorboard(record, call.caller, here.clock, here.application_addresses)
    return documents.answer(opened)


@router.get("/{name}/logs", responses=bytes_of("text/plain"))
async def logs(
    here: Here,
    call: Signed,
    name: str,
    *,
    lines: int | None = None,
    follow: bool = False,
    attempt: int | None = None,
    offset: Annotated[int, Query(ge=0, lt=2**62)] = 0,
    installation: bool = True,
    timestamps: bool = False,
    org_id: str | None = None,
) -> Response:
    """The output of a TensorBoard as it was written; with ``follow``, as it comes.

    ``installation=false`` leaves out what was written before TensorBoard ran. ``timestamps`` puts a
    time in UTC before each line.
    """
    record = await here.offload(_find, here, call, name, org_id)
    view = LogView(installation, timestamps)
    chunks = here.logs.read(record, Selection(None, attempt, lines, follow, offset, view))
    return streams.text(chunks) if follow else await streams.whole_text(chunks)


def _find(here: Platform, call: Call, name: str, org_id: str | None) -> TensorBoardRecord:
    found: TensorBoardRecord = here.resources_of[TENSORBOARDS.plural].find(
        here.identities.scope(call.caller, org_id), name
    )
    return found
