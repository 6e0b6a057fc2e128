"""``/api/v1/admin/quota``: limits, what is used of them, and applications for more."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from cloud_ml.api import documents
from cloud_ml.api.auth import Signed
from cloud_ml.api.openapi import answers, body_of
from cloud_ml.api.routes import CHECKED, Here
from cloud_ml.domain.quotas import Decision
from cloud_ml.models import codec
from cloud_ml.models.admin.quota import (
    Application,
    ApplicationPage,
    NewApplication,
    OrgQuota,
    QuotaChange,
    QuotaPage,
)

router = APIRouter(
    prefix="/api/v1/admin/quota",
    tags=["admin"],
    default_response_class=Response,
    dependencies=CHECKED,
)


@router.get("", responses=answers(QuotaPage))
async def show(here: Here, call: Signed, org: str | None = None) -> Response:
    """Limits and what is used, of the caller's organisation; for an admin of any, or with
    ``org=-1`` of all.
    """
    return documents.answer(
        QuotaPage(items=await here.offload.long(call.org, here.quotas.show, call.caller, org))
    )


@router.get("/applications", responses=answers(ApplicationPage))
async def applications(here: Here, call: Signed, org: str | None = None) -> Response:
    """Applications, newest first: the organisation's, or for an admin everybody's."""
    return documents.answer(
        ApplicationPage(items=await here.offload(here.quotas.applications, call.caller, org))
    )


@router.post(
    "/applications",
    status_code=201,
    responses=answers(Application, 201),
    openapi_extra=body_of(NewApplication),
)
async def apply(here: Here, call: Signed, org: str | None = None) -> Response:
    """Ask for other limits. Nothing changes until an admin approves."""
    request = codec.decode(NewApplication, documents.read_object(call.body))
    return documents.answer(
        await here.offload(here.quotas.apply, call.caller, request, org, once=call.once), 201
    )


@router.post("/applications/{application}/approve", responses=answers(Application))
async def approve(here: Here, call: Signed, application: str) -> Response:
    """Set the limits that an application asks for."""
    decided = await here.offload(
        here.quotas.decide, call.caller, application, Decision.APPROVED, once=call.once
    )
    return documents.answer(decided)


@router.post("/applications/{application}/decline", responses=answers(Application))
async def decline(here: Here, call: Signed, application: str) -> Response:
    """Turn an application down."""
    decided = await here.offload(
        here.quotas.decide, call.caller, application, Decision.DECLINED, once=call.once
    )
    return documents.answer(decided)


@router.put("/{org}", responses=answers(OrgQuota), openapi_extra=body_of(QuotaChange))
async def update(here: Here, call: Signed, org: str) -> Response:
    """Set limits; what is left out stays. Jobs that wait start as soon as they fit, what runs
    runs on.
    """
    change = codec.decode(QuotaChange, documents.read_object(call.body))
    return documents.answer(
        await here.offload(here.quotas.set, call.caller, org, change, once=call.once)
    )
