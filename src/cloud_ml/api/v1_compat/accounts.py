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
from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.tenancy import Operation
from cloud_ml.domain.tensorboards.spec import TENSORBOARD
from cloud_ml.engines.base import Capacity
from cloud_ml.models import common
from cloud_ml.models.admin.accounts import OrganisationChange
from cloud_ml.usecases import usage
from cloud_ml.usecases.access.identities import Organisation
from cloud_ml.usecases.access.permissions import permit

router = APIRouter(default_response_class=Response)


@router.get("/framework")
async def frameworks(here: Here) -> Response:
    """Framework → versions. The one request that is not signed."""
    return documents.answer(
        {name: list(versions) for name, versions in here.catalog.listing().items()}
    )


@router.get("/org_ids")
async def organisation(call: Signed) -> Response:
    """The caller's organisation."""
    return documents.answer({"org_id": str(call.caller.organisation.number)})


@router.get("/authentication")
async def authentication(call: Signed) -> Response:
    """Whether the key is good: older clients ask here, and only the status counts."""
    return documents.answer(
        {"org_id": str(call.caller.organisation.number), "message": "the key is good"}
    )


@router.post("/quota")
async def own_quota(here: Here, call: SignedQuestion) -> Response:
    """The caller's quota. A POST that only reads: the mail address in its body is told again
    where none is known.
    """
    return await _quota(here, call, None, quotas.mail_in(call.body))


@router.get("/quota")
async def quota(here: Here, call: Signed, org_id: str | None = None) -> Response:
    """Somebody's quota; without ``org_id`` a check of the key, of which only the status counts."""
    return await _quota(here, call, org_id)


@router.put("/quota/{org_id}")
async def set_quota(here: Here, call: Signed, org_id: str) -> Response:
    """Set limits of an organisation, for an administrator; the answer is the whole quota."""
    document = documents.read_object(call.body)
    capacity = await here.engine.capacity()

    def change() -> dict[str, str]:
        permit(call.caller, Operation.MANAGE_PLATFORM)
        organisation = here.identities.named(call.caller, org_id)
        name = document.get("org_name")
        if name and name != organisation.name:
            raise common.refuse(
                "org_name", name, f"{organisation.name}: an organisation keeps its name"
            )
        mail = document.get("org_mail")
        here.quotas.edit(
            organisation.name, lambda spec: quotas.change_quota(spec, document), once=call.once
        )
        if mail:
            here.organisations.change(
                call.caller, organisation.name, OrganisationChange(mail=str(mail))
            )
        return _row(here, here.identities.organisation(organisation.name), capacity)

    return documents.answer(await here.offload(change))


@router.post("/application")
async def application(here: Here, call: Signed, org_id: str | None = None) -> Response:
    """Ask for a larger quota. It is kept for an administrator to decide."""
    request = quotas.application(documents.read_object(call.body))
    made = await here.offload(here.quotas.apply, call.caller, request, org_id, once=call.once)
    return documents.answer(
        {"error": False, "id": made.id, "message": "an administrator will decide"}
    )


@router.get("/resources")
async def resources(here: Here, call: Signed, org_id: str | None = None) -> Response:
    """What is free on this server."""
    capacity = await here.engine.capacity()

    def left() -> dict[str, Any]:
        here.identities.scope(call.caller, org_id)
        return quotas.resources_row(
            usage.free(capacity, usage.measure_use(here.store, None, TRAIN_JOB))
        )

    return documents.answer({"data": [await here.offload(left)]})


def _row(here: Platform, organisation: Organisation, capacity: Capacity) -> dict[str, str]:
    used = usage.measure_use(here.store, organisation.name, TRAIN_JOB)
    models = usage.used_by_services(here.store, organisation.name)
    boards = usage.measure_use(here.store, organisation.name, TENSORBOARD)
    quota = here.quotas.of(organisation.name)
    return quotas.row(organisation, capacity, used, quota, models, boards=boards)


async def _quota(here: Platform, call: Call, org_id: str | None, mail: str = "") -> Response:
    capacity = await here.engine.capacity()

    def rows() -> list[dict[str, str]]:
        scope = here.identities.scope(call.caller, org_id)
        organisations = (
            [here.identities.organisation(scope)]
            if scope is not None
            else here.identities.organisations()
        )
        found = [_row(here, one, capacity) for one in organisations]
        return [{**row, "org_mail": row["org_mail"] or mail} for row in found]

    return documents.answer({"data": await here.offload(rows)})
