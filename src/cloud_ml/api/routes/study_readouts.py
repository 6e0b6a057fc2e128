"""``/api/v1/studies/{name}/importance`` and ``/curves``: what can be read out of the trials."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from cloud_ml.api import documents
from cloud_ml.api.auth import Signed
from cloud_ml.api.openapi import answers
from cloud_ml.api.routes import CHECKED, Here
from cloud_ml.models.studies.readouts import StudyCurves, StudyImportance

router = APIRouter(
    prefix="/api/v1/studies/{name}",
    tags=["studies"],
    default_response_class=Response,
    dependencies=CHECKED,
)
_Objective = Annotated[str | None, Query(max_length=250)]


@router.get("/importance", responses=answers(StudyImportance))
async def importance(here: Here, call: Signed, name: str, objective: _Objective = None) -> Response:
    """How much each parameter matters for an objective of the study, the first one by default: its
    share of the variance (fANOVA) and its permutation importance. Takes five completed trials.
    """
    return documents.answer(await here.study_readouts.importance(call.caller, name, objective))


@router.get("/curves", responses=answers(StudyCurves))
async def curves(
    here: Here, call: Signed, name: str, objective: _Objective = None, points: int = 100
) -> Response:
    """The values that trials reported while they ran, at most ``points`` of each; of many, the
    lowest and the highest value of each part. Of a large study they are fewer: 100,000 in all.
    """
    found = await here.study_readouts.curves(call.caller, name, objective, points)
    return documents.answer(found)
