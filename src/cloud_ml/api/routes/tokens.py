"""``/api/v1/tokens``: access tokens."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header
from starlette.responses import Response

from cloud_ml.api import documents
from cloud_ml.api.auth import Signed
from cloud_ml.api.openapi import answers, body_of
from cloud_ml.api.routes import CHECKED, Here
from cloud_ml.models import codec
from cloud_ml.models.admin import access_tokens
from cloud_ml.models.common import check_idempotency_key

router = APIRouter(
    prefix="/api/v1/tokens", tags=["tokens"], default_response_class=Response, dependencies=CHECKED
)

IdempotencyKey = Annotated[str | None, Header(max_length=255)]
_NEVER_STORED = {"Cache-Control": "no-store"}


@router.get("", responses=answers(access_tokens.AccessTokenPage))
async def list_tokens(
    here: Here, call: Signed, org: str | None = None, user: str | None = None
) -> Response:
    """Tokens without their texts: the organisation's for who manages it, else the caller's own."""
    found = await here.offload(here.tokens.list_tokens, call.caller, org, user)
    return documents.answer(access_tokens.AccessTokenPage(items=found))


@router.post(
    "",
    status_code=201,
    responses=answers(access_tokens.CreatedAccessToken, 201),
    openapi_extra=body_of(access_tokens.NewAccessToken),
)
async def create(here: Here, call: Signed, idempotency_key: IdempotencyKey = None) -> Response:
    """Create a token of the caller's key. Its text is in this answer and in no other.

    A repeated request with the same `Idempotency-Key` creates no second token. It gets a new text
    for the first one, whose earlier text no longer works.
    """
    check_idempotency_key(idempotency_key)
    request = codec.decode(access_tokens.NewAccessToken, documents.read_object(call.body))
    made = await here.change_rights(
        here.tokens.create, call.caller, request, idempotency_key=idempotency_key, once=call.once
    )
    return documents.answer(made, 201, _NEVER_STORED)


@router.get("/{token}", responses=answers(access_tokens.AccessToken))
async def describe(here: Here, call: Signed, token: str) -> Response:
    """One token, without its text."""
    return documents.answer(await here.offload(here.tokens.describe, call.caller, token))


@router.delete("/{token}", responses=answers(access_tokens.AccessToken))
async def revoke(here: Here, call: Signed, token: str) -> Response:
    """End a token, and the tokens that it created."""
    return documents.answer(
        await here.change_rights(here.tokens.revoke, call.caller, token, once=call.once)
    )
