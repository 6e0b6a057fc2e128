"""``/api/v1/secrets``. A value comes in once, and no route gives it back."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from cloud_ml.api import documents
from cloud_ml.api.auth import Signed
from cloud_ml.api.openapi import answers, body_of
from cloud_ml.api.routes import CHECKED, Here
from cloud_ml.errors import InvalidRequest
from cloud_ml.models import codec
from cloud_ml.models.secrets.secret import NewSecret, Secret, SecretPage

router = APIRouter(
    prefix="/api/v1/secrets",
    tags=["secrets"],
    default_response_class=Response,
    dependencies=CHECKED,
)


@router.post("", status_code=201, responses=answers(Secret, 201), openapi_extra=body_of(NewSecret))
async def create(here: Here, call: Signed) -> Response:
    """Store a secret. With ``replace`` an existing one gets the new value, for attempts that
    start from then on.
    """
    document = documents.read_object(call.body)
    if not isinstance(
        document.get("data", ""), str
    ):  # the message about any other field may repeat its value
        raise InvalidRequest("data is not a text", field="data", allowed="the value in base64")
    request = codec.decode(NewSecret, document)
    return documents.answer(
        await here.offload(here.secrets.create, call.caller, request, once=call.once), 201
    )


@router.get("", responses=answers(SecretPage))
async def list_secrets(here: Here, call: Signed, org_id: str | None = None) -> Response:
    """The secrets of the organisation by name, without their values."""

    def page() -> SecretPage:
        return SecretPage(items=here.secrets.list(here.identities.scope(call.caller, org_id)))

    return documents.answer(await here.offload(page))


@router.get("/{name}", responses=answers(Secret))
async def describe(here: Here, call: Signed, name: str) -> Response:
    """One secret, without its value."""
    return documents.answer(await here.offload(here.secrets.describe, call.org, name))


@router.delete("/{name}", responses=answers(Secret))
async def delete(here: Here, call: Signed, name: str) -> Response:
    """Remove a secret. What runs keeps its copy; attempts that need it do not start any more."""
    return documents.answer(
        await here.offload(here.secrets.delete, call.caller, name, once=call.once)
    )
