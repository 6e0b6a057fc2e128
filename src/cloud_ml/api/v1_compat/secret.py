"""``/cloud_ml/v1/secret``: names of secrets, never their content."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from cloud_ml.api import documents
from cloud_ml.api.auth import Signed
from cloud_ml.api.platform import Platform
from cloud_ml.api.routes import Here
from cloud_ml.errors import InvalidRequest
from cloud_ml.models.secrets.secret import NewSecret, Secret
from cloud_ml.usecases.jobs import views

router = APIRouter(prefix="/secret", default_response_class=Response)


@router.post("")
async def create(here: Here, call: Signed) -> Response:
    """Store a secret. ``data`` is base64, also with the line breaks that the original client
    puts in.
    """
    document = documents.read_object(call.body)
    name, data = document.get("secret_name"), document.get("data")
    for field, value in (("secret_name", name), ("data", data)):
        if not isinstance(value, str):  # no message repeats what was sent: it may be the secret
            raise InvalidRequest(
                f"{field} is missing, or is not a text", field=field, allowed="a text"
            )
    request = NewSecret(name=str(name), data="".join(str(data).split()))

    def store() -> dict[str, Any]:
        return {"data": _document(here, here.secrets.create(call.caller, request, once=call.once))}

    return documents.answer(await here.offload(store))


@router.get("")
async def list_secrets(here: Here, call: Signed, org_id: str | None = None) -> Response:
    """The secrets of the organisation; for an administrator of any, or with ``-1`` of all."""

    def rows() -> dict[str, Any]:
        found = here.secrets.list(here.identities.scope(call.caller, org_id))
        return {"data": [_document(here, one) for one in found]}

    return documents.answer(await here.offload(rows))


@router.get("/{name}")
async def describe(here: Here, call: Signed, name: str, org_id: str | None = None) -> Response:
    """One secret."""

    def look() -> dict[str, Any]:
        org = here.identities.scope(call.caller, org_id) or call.org
        return {"data": _document(here, here.secrets.describe(org, name))}

    return documents.answer(await here.offload(look))


@router.delete("/{name}")
async def delete(here: Here, call: Signed, name: str, org_id: str | None = None) -> Response:
    """Remove a secret."""

    def remove() -> dict[str, Any]:
        org = here.identities.scope(call.caller, org_id) or call.org
        gone = here.secrets.delete(call.caller, name, org=org, once=call.once)
        return {"secret_name": gone.name, "message": f"{gone.name} is deleted"}

    return documents.answer(await here.offload(remove))


def _document(here: Platform, secret: Secret) -> dict[str, Any]:
    return {
        "org_id": str(here.identities.organisation(secret.org).number),
        "org_name": secret.org,
        "secret_name": secret.name,
        "create_time": views.original_time(secret.created_at),
    }
