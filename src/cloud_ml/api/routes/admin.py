"""``/api/v1/admin``: organisations, users and keys."""

from __future__ import annotations

from typing import Annotated, TypeVar

from fastapi import APIRouter, Header
from starlette.responses import Response

from cloud_ml.api import documents
from cloud_ml.api.auth import Call, Signed
from cloud_ml.api.openapi import answers, body_of
from cloud_ml.api.routes import CHECKED, Here
from cloud_ml.models import codec
from cloud_ml.models.admin import accounts
from cloud_ml.models.common import check_idempotency_key

router = APIRouter(
    prefix="/api/v1/admin", tags=["admin"], default_response_class=Response, dependencies=CHECKED
)

B = TypeVar("B")
IdempotencyKey = Annotated[str | None, Header(max_length=255)]


@router.get("/orgs", responses=answers(accounts.OrganisationPage))
async def list_orgs(here: Here, call: Signed) -> Response:
    """Every organisation, for an admin; for everybody else the own one."""
    return documents.answer(
        accounts.OrganisationPage(items=await here.offload(here.organisations.list, call.caller))
    )


@router.post(
    "/orgs",
    status_code=201,
    responses=answers(accounts.Organisation, 201),
    openapi_extra=body_of(accounts.NewOrganisation),
)
async def create_org(here: Here, call: Signed) -> Response:
    """Make an organisation and its default bucket."""
    request = body(accounts.NewOrganisation, call)
    return documents.answer(
        await here.offload(here.organisations.create, call.caller, request, once=call.once), 201
    )


@router.get("/orgs/{org}", responses=answers(accounts.Organisation))
async def describe_org(here: Here, call: Signed, org: str) -> Response:
    """An organisation by name or number."""
    return documents.answer(await here.offload(here.organisations.describe, call.caller, org))


@router.patch(
    "/orgs/{org}",
    responses=answers(accounts.Organisation),
    openapi_extra=body_of(accounts.OrganisationChange),
)
async def change_org(here: Here, call: Signed, org: str) -> Response:
    """Enable or disable an organisation, or change its mail address or its default bucket."""
    change = body(accounts.OrganisationChange, call)
    return documents.answer(
        await here.change_rights(
            here.organisations.change, call.caller, org, change, once=call.once
        )
    )


@router.delete("/orgs/{org}", responses=answers(accounts.Organisation))
async def delete_org(here: Here, call: Signed, org: str) -> Response:
    """Remove an organisation that is disabled and has neither jobs nor objects, with its empty
    default bucket. Its name is never given again.
    """
    return documents.answer(
        await here.change_rights(here.organisations.delete, call.caller, org, once=call.once)
    )


@router.get("/users", responses=answers(accounts.UserPage))
async def list_users(here: Here, call: Signed, org: str | None = None) -> Response:
    """The users of an organisation, by default the caller's."""
    return documents.answer(
        accounts.UserPage(items=await here.offload(here.users.list, call.caller, org))
    )


@router.post(
    "/users",
    status_code=201,
    responses=answers(accounts.User, 201),
    openapi_extra=body_of(accounts.NewUser),
)
async def create_user(here: Here, call: Signed, org: str | None = None) -> Response:
    """Make a user, who has no key yet."""
    request = body(accounts.NewUser, call)
    return documents.answer(
        await here.offload(here.users.create, call.caller, request, org, once=call.once), 201
    )


@router.get("/users/{user}", responses=answers(accounts.User))
async def describe_user(here: Here, call: Signed, user: str, org: str | None = None) -> Response:
    """One user."""
    return documents.answer(await here.offload(here.users.describe, call.caller, user, org))


@router.patch(
    "/users/{user}", responses=answers(accounts.User), openapi_extra=body_of(accounts.UserChange)
)
async def change_user(here: Here, call: Signed, user: str, org: str | None = None) -> Response:
    """Give a user another role or mail address, or enable or disable it."""
    change = body(accounts.UserChange, call)
    return documents.answer(
        await here.change_rights(here.users.change, call.caller, user, change, org, once=call.once)
    )


@router.delete("/users/{user}", responses=answers(accounts.User))
async def delete_user(here: Here, call: Signed, user: str, org: str | None = None) -> Response:
    """Remove a user and its keys; its jobs and objects stay."""
    return documents.answer(
        await here.change_rights(here.users.delete, call.caller, user, org, once=call.once)
    )


@router.get("/keys", responses=answers(accounts.AccessKeyPage))
async def list_keys(
    here: Here, call: Signed, org: str | None = None, user: str | None = None
) -> Response:
    """Keys without their secrets: the organisation's for who manages it, else the caller's own."""
    return documents.answer(
        accounts.AccessKeyPage(items=await here.offload(here.keys.list, call.caller, org, user))
    )


@router.post(
    "/keys",
    status_code=201,
    responses=answers(accounts.NewAccessKey, 201),
    openapi_extra=body_of(accounts.AccessKeyRequest),
)
async def create_key(
    here: Here, call: Signed, org: str | None = None, idempotency_key: IdempotencyKey = None
) -> Response:
    """Make a key. Its secret is in this answer and in no other."""
    check_idempotency_key(idempotency_key)
    request = body(accounts.AccessKeyRequest, call)
    made = await here.change_rights(
        here.keys.create, call.caller, request, org, idempotency_key=idempotency_key, once=call.once
    )
    return documents.answer(made, 201, _NEVER_STORED)


@router.get("/keys/{access_key}", responses=answers(accounts.AccessKey))
async def describe_key(here: Here, call: Signed, access_key: str) -> Response:
    """One key, without its secret."""
    return documents.answer(await here.offload(here.keys.describe, call.caller, access_key))


@router.patch(
    "/keys/{access_key}",
    responses=answers(accounts.AccessKey),
    openapi_extra=body_of(accounts.KeyChange),
)
async def change_key(here: Here, call: Signed, access_key: str) -> Response:
    """Enable or disable a key, or the signatures of the original clients for it."""
    change = body(accounts.KeyChange, call)
    return documents.answer(
        await here.change_rights(here.keys.change, call.caller, access_key, change, once=call.once)
    )


@router.post(
    "/keys/{access_key}/rotate",
    status_code=201,
    responses=answers(accounts.NewAccessKey, 201),
    openapi_extra=body_of(accounts.Rotation),
)
async def rotate_key(
    here: Here, call: Signed, access_key: str, idempotency_key: IdempotencyKey = None
) -> Response:
    """Make a key in place of another, which ends after the overlap. The secret is in this answer
    and in no other.
    """
    check_idempotency_key(idempotency_key)
    rotation = body(accounts.Rotation, call)
    made = await here.change_rights(
        here.keys.rotate,
        call.caller,
        access_key,
        rotation,
        idempotency_key=idempotency_key,
        once=call.once,
    )
    return documents.answer(made, 201, _NEVER_STORED)


@router.delete("/keys/{access_key}", responses=answers(accounts.AccessKey))
async def revoke_key(here: Here, call: Signed, access_key: str) -> Response:
    """Remove a key for good."""
    return documents.answer(
        await here.change_rights(here.keys.revoke, call.caller, access_key, once=call.once)
    )


def body(model: type[B], call: Call) -> B:
    """The body of a request as ``model``.

    Raises:
        InvalidRequest: It is none; names the field.
    """
    return codec.decode(model, documents.read_object(call.body))


_NEVER_STORED = {"Cache-Control": "no-store"}
