"""``POST /api/v1/optuna/{method}``: a message of Optuna's client, and the one that answers it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Header
from starlette.requests import Request
from starlette.responses import Response

from cloud_ml.api.auth import Call, admit
from cloud_ml.api.openapi import OBJECT_BODY, bytes_of
from cloud_ml.api.optuna.methods import OF_TRIALS, READS, WRITES, MethodCall
from cloud_ml.api.optuna.wire import Message
from cloud_ml.api.routes import CHECKED, Here
from cloud_ml.errors import NotFound
from cloud_ml.models.common import check_idempotency_key
from cloud_ml.usecases.studies.optuna_studies import TRIALS_OF_A_STUDY

MEDIA_TYPE = "application/x-protobuf"
router = APIRouter(
    prefix="/api/v1/optuna",
    tags=["studies"],
    default_response_class=Response,
    dependencies=CHECKED,
)


async def signed_call(request: Request) -> Call:
    """Establish the caller: what is not known to only read counts as a mutation."""
    method = request.path_params.get("method", "")
    return await admit(request, mutation=method not in READS)


SignedCall = Annotated[Call, Depends(signed_call)]


@router.post("/{method}", responses=bytes_of(MEDIA_TYPE), openapi_extra=OBJECT_BODY)
async def call_method(
    here: Here,
    call: SignedCall,
    method: str,
    idempotency_key: Annotated[str | None, Header(max_length=255)] = None,
) -> Response:
    """Call a method of the gRPC service ``optuna.StorageService``: ``cloudml hp proxy`` does, for
    Optuna's ``GrpcStorageProxy``. Body and answer are messages of Protocol Buffers.
    """
    check_idempotency_key(idempotency_key)
    found = READS.get(method) or WRITES.get(method)
    if found is None:
        raise NotFound(f"optuna.StorageService has no method {method[:100]}", field="method")
    message = Message(call.body)
    made = MethodCall(
        here.optuna,
        call.caller,
        await here.engine.capacity(),
        call.once,
        idempotency_key or "",
    )
    if method in READS or method == "CreateNewStudy":
        answer = await here.offload(found, made, message)
    else:
        number = message.integer(1)
        study = number // TRIALS_OF_A_STUDY if method in OF_TRIALS else number
        async with here.optuna.lock(study):
            answer = await here.offload(found, made, message)
    return Response(answer, media_type=MEDIA_TYPE)
