"""Frameworks, organisation, quota and free resources of the original wire."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from cloud_ml.api import documents
from cloud_ml.api.auth import Call, Signed, SignedQuestion
from cloud_ml.api.platform import Platform
from cloud_ml.api.routes import Here
from cloud_ml.api.v1_compat import quotas
from cloud_ml.usecases import usage

router = APIRouter(default_response_class=Response)


@router.get("/framework")
async def frameworks(here: Here) -> Response:
    """Framework → versions. The one request that is not signed."""
    return documents.answer({name: list(versions) for name, versions in here.catalog.listing().items()})


@router.get("/org_ids")
async def organisation(call: Signed) -> Response:
    """The caller's organisation."""
    return documents.answer({"org_id": str(call.caller.organisation.number)})


@router.get("/authentication")
async def authentication(call: Signed) -> Response:
    """Whether the key is good: older clients ask here, and only the status counts."""
    return documents.answer({"org_id": str(call.caller.organisation.number), "message": "the key is good"})


@router.post("/quota")
async def own_quota(here: Here, call: SignedQuestion) -> Response:
    """The caller's quota. A POST that only reads; the mail address in its body is not needed."""
    return await _quota(here, call, None)


@router.get("/quota")
async def quota(here: Here, call: Signed, org_id: str | None = None) -> Response:
    """Somebody's quota; without ``org_id`` a check of the key, of which only the status counts."""
    return await _quota(here, call, org_id)


@router.get("/resources")
async def resources(here: Here, call: Signed, org_id: str | None = None) -> Response:
    """What is free on this server."""
    capacity = await here.engine.capacity()

    def left() -> dict[str, Any]:
        here.identities.scope(call.caller, org_id)
        return quotas.resources_row(usage.free(capacity, usage.used(here.store, None)))

    return documents.answer({"data": [await here.offload(left)]})


async def _quota(here: Platform, call: Call, org_id: str | None) -> Response:
    capacity = await here.engine.capacity()

    def rows() -> list[dict[str, str]]:
        scope = here.identities.scope(call.caller, org_id)
        asked = [here.identities.organisation(scope)] if scope is not None else here.identities.organisations()
        return [quotas.row(one, capacity, usage.used(here.store, one.name)) for one in asked]

    return documents.answer({"data": await here.offload(rows)})
