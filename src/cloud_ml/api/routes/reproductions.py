"""``/api/v1/jobs/{name}/reproduce``: a job again from its record, and the verdict."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.responses import Response

from cloud_ml.api import documents
from cloud_ml.api.auth import Signed
from cloud_ml.api.openapi import answers, body_of
from cloud_ml.api.routes import CHECKED, Here
from cloud_ml.models import codec, common
from cloud_ml.models.jobs.job import Job
from cloud_ml.models.jobs.reproduction import NewReproduction, Reproduction
from cloud_ml.usecases.jobs import views

router = APIRouter(
    prefix="/api/v1/jobs/{name}/reproduce",
    tags=["jobs"],
    default_response_class=Response,
    dependencies=CHECKED,
)


@router.post(
    "", status_code=201, responses=answers(Job, 201), openapi_extra=body_of(NewReproduction)
)
async def reproduce(
    here: Here,
    call: Signed,
    name: str,
    *,
    idempotency_key: Annotated[str | None, Header(max_length=255)] = None,
) -> Response:
    """Submit a job that does again what this one did: same code, arguments, packages and seed.

    It writes beside the folders of the first one, and deploys nothing. Ask for the verdict when it
    has ended.
    """
    common.check_idempotency_key(idempotency_key)
    request = codec.decode(NewReproduction, documents.read_object(call.body))
    record = await here.offload(
        here.reproductions.begin,
        call.caller,
        name,
        request.job_name,
        await here.engine.capacity(),
        idempotency_key=idempotency_key,
        once=call.once,
    )
    return documents.answer(views.job(record), 201)


@router.get("/{again}", responses=answers(Reproduction))
async def verdict(
    here: Here,
    call: Signed,
    name: str,
    again: str,
    *,
    once_more: Annotated[str | None, Query(max_length=64)] = None,
    tolerance: float = 1e-6,
    metric: Annotated[list[str], Query(max_length=50)] = [],  # noqa: B006 - FastAPI's way
) -> Response:
    """Whether the job ``again`` gave what this one gave: metrics at each step, and files.

    ``once_more`` is a third job: it tells whether the code differs from itself when it runs twice.
    With ``metric``, only these metrics are compared.
    """

    def found() -> Reproduction:
        return here.reproductions.verdict(
            call.org,
            name,
            again,
            once_more=once_more,
            tolerance=tolerance,
            metrics=metric,
            stop=here.offload.stopping,
        )

    return documents.answer(await here.offload.long(call.org, found))
