"""``/cloud_ml/v1/tensorboard``: TensorBoards, as the original client asks for them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from cloud_ml.api import documents
from cloud_ml.api.auth import Call, Signed
from cloud_ml.api.platform import Platform
from cloud_ml.api.routes import Here
from cloud_ml.domain.tensorboards.spec import TENSORBOARD, TensorBoardRecord
from cloud_ml.errors import CloudMlError, InvalidRequest
from cloud_ml.models.tracking.tensorboard import TENSORBOARDS, NewTensorBoard
from cloud_ml.usecases.jobs import views
from cloud_ml.usecases.tensorboards import views as tensorboard_views
from cloud_ml.usecases.tensorboards.tensorboards import open_tensorboard

router = APIRouter(prefix="/tensorboard", default_response_class=Response)

_NEWEST = 1000
_READ = frozenset({"tensorboard_name", "logdir", "enable_rank"})


@router.post("")
async def create(here: Here, call: Signed) -> Response:
    """Take a TensorBoard. It runs PyPI's, so images and frameworks are ignored; its events say
    so.
    """
    document = documents.read_object(call.body)
    new = NewTensorBoard(name=_text(document, "tensorboard_name"), logdir=_text(document, "logdir"))
    notes = [
        f"{name[:80]} was ignored: TensorBoards run in an environment of the platform's own"
        for name, value in document.items()
        if name not in _READ and value not in (None, "")
    ]
    capacity = await here.engine.capacity()

    def take() -> dict[str, Any]:
        record = here.resources_of[TENSORBOARDS.plural].create(
            call.caller, new, capacity, once=call.once, notes=notes[:20]
        )
        return _document(here, record)

    return documents.answer(await here.offload(take))


@router.get("")
async def list_boards(here: Here, call: Signed, org_id: str | None = None) -> Response:
    """The newest TensorBoards."""

    def rows() -> list[dict[str, Any]]:
        scope = here.identities.scope(call.caller, org_id)
        page = here.store.list(TENSORBOARD, org=scope, limit=_NEWEST)
        found = (here.store.get(TENSORBOARD, line.key.uid) for line in page.items)
        return [_document(here, record) for record in found if record is not None]

    return documents.answer({"data": await here.offload(rows)})


@router.get("/{name}")
async def describe(here: Here, call: Signed, name: str, org_id: str | None = None) -> Response:
    """One TensorBoard. Its ``address`` opens it once and within a minute, since the original
    client has no command to open one.
    """

    def look() -> tuple[TensorBoardRecord, dict[str, Any]]:
        record = _find(here, call, name, org_id)
        return record, _document(here, record)

    record, document = await here.offload(look)
    if record.key.org == call.org:
        document["address"] = await _way_in(here, call, record) or document["address"]
    return documents.answer(document)


@router.delete("/{name}")
async def delete(here: Here, call: Signed, name: str, org_id: str | None = None) -> Response:
    """Ask for the removal of a TensorBoard."""

    def remove() -> dict[str, Any]:
        scope = here.identities.scope(call.caller, org_id)
        boards = here.resources_of[TENSORBOARDS.plural]
        record = boards.delete(scope, name, call.caller, once=call.once)
        message = f"{record.key.name} is being deleted"
        return {"tensorboard_name": record.key.name, "state": "deleting", "message": message}

    return documents.answer(await here.offload(remove))


@router.get("/{name}/events")
async def events(here: Here, call: Signed, name: str, org_id: str | None = None) -> Response:
    """Events of a TensorBoard."""

    def read_events() -> dict[str, Any]:
        record = _find(here, call, name, org_id)
        return views.events_document(name, here.store.events(record.key.uid, after=0))

    return documents.answer(await here.offload(read_events))


async def _way_in(here: Platform, call: Call, record: TensorBoardRecord) -> str:
    """A URL with a ticket; empty where browsers cannot reach it now."""
    await here.application_reachable(record.key.uid)
    try:
        return open_tensorboard(record, call.caller, here.clock, here.application_addresses).url
    except CloudMlError:  # it is shown all the same
        return ""


def _text(document: dict[str, Any], field: str) -> str:
    value = document.get(field)
    if not isinstance(value, str) or not value:
        raise InvalidRequest(
            f"{field} is missing, or is not a text", field=field, value=value, allowed="a text"
        )
    return value


def _find(here: Platform, call: Call, name: str, org_id: str | None) -> TensorBoardRecord:
    found: TensorBoardRecord = here.resources_of[TENSORBOARDS.plural].find(
        here.identities.scope(call.caller, org_id), name
    )
    return found


def _document(here: Platform, record: TensorBoardRecord) -> dict[str, Any]:
    return tensorboard_views.document(
        record, here.identities.organisation(record.key.org), here.application_addresses
    )
