"""``/api/v1/experiments``: groups of runs."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from cloud_ml.api import documents
from cloud_ml.api.auth import Signed
from cloud_ml.api.openapi import answers
from cloud_ml.api.routes import CHECKED, Here
from cloud_ml.models.run import ExperimentPage
from cloud_ml.usecases.tracking.views import experiment_view

router = APIRouter(
    prefix="/api/v1",
    tags=["runs"],
    default_response_class=Response,
    dependencies=CHECKED,
)


@router.get("/experiments", responses=answers(ExperimentPage))
async def list_experiments(here: Here, call: Signed) -> Response:
    """The experiments of the caller's organisation, newest first."""

    def page() -> ExperimentPage:
        found = here.experiments.search(call.org)
        return ExperimentPage(items=[experiment_view(one) for one in found])

    return documents.answer(await here.offload(page))
