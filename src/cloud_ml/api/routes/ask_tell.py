"""``/api/v1/studies/{name}/ask``, ``/tell`` and ``/report``: trials for loops of users."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from cloud_ml.api import documents
from cloud_ml.api.auth import Signed
from cloud_ml.api.openapi import answers, body_of
from cloud_ml.api.routes import CHECKED, Here
from cloud_ml.models import codec
from cloud_ml.models.studies.ask_tell import (
    AskedTrial,
    AskTrial,
    ReportTrial,
    TellTrial,
    TrialAdvice,
)

router = APIRouter(
    prefix="/api/v1/studies",
    tags=["studies"],
    default_response_class=Response,
    dependencies=CHECKED,
)


@router.post("/{name}/ask", responses=answers(AskedTrial), openapi_extra=body_of(AskTrial))
async def ask(here: Here, call: Signed, name: str) -> Response:
    """The next trial of a local study. The same ``key`` gets the same trial. The field ``tell`` says
    how another trial has ended, as ``/tell`` does.
    """
    question = codec.decode(AskTrial, documents.read_object(call.body))
    return documents.answer(await here.ask_tell.ask(call.caller, name, question, call.once))


@router.post("/{name}/tell", responses=answers(TellTrial), openapi_extra=body_of(TellTrial))
async def tell(here: Here, call: Signed, name: str) -> Response:
    """Tell how a trial of a local study has ended. Telling it again changes nothing."""
    body = codec.decode(TellTrial, documents.read_object(call.body))
    await here.ask_tell.tell(call.caller, name, body, call.once)
    return documents.answer(body)


@router.post("/{name}/report", responses=answers(TrialAdvice), openapi_extra=body_of(ReportTrial))
async def report(here: Here, call: Signed, name: str) -> Response:
    """Report a value of a trial that runs. The answer says whether it should end now."""
    body = codec.decode(ReportTrial, documents.read_object(call.body))
    return documents.answer(await here.ask_tell.report(call.caller, name, body, call.once))
