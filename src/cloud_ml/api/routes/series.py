"""``/api/v1/jobs/{name}/series``: the metrics that a job has reported."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from cloud_ml.api import documents
from cloud_ml.api.auth import Call, Signed
from cloud_ml.api.openapi import answers
from cloud_ml.api.routes import CHECKED, Here
from cloud_ml.domain.jobs.kind import TrainJobRecord
from cloud_ml.domain.metrics.points import LARGEST_STEP
from cloud_ml.models.tracking.metrics import JobSeries, MetricPoints
from cloud_ml.usecases.metrics.job_metrics import reporter_of

router = APIRouter(
    prefix="/api/v1/jobs/{name}/series",
    tags=["jobs"],
    default_response_class=Response,
    dependencies=CHECKED,
)
_Task = Annotated[str | None, Query(max_length=64)]


@router.get("", responses=answers(JobSeries))
async def list_series(
    here: Here, call: Signed, name: str, task: _Task = None, org_id: str | None = None
) -> Response:
    """The metrics that a job has reported, by task and name: how many points each has, its extremes
    and its last value.
    """
    record = await _find(here, call, name, org_id)
    return documents.answer(await here.offload(here.job_metrics.series, reporter_of(record), task))


@router.get("/{metric:path}", responses=answers(MetricPoints))
async def points(
    here: Here,
    call: Signed,
    name: str,
    metric: str,
    *,
    task: _Task = None,
    low: Annotated[int | None, Query(alias="from", ge=-LARGEST_STEP, le=LARGEST_STEP)] = None,
    high: Annotated[int | None, Query(alias="to", ge=-LARGEST_STEP, le=LARGEST_STEP)] = None,
    points: int = 1000,
    earlier: bool = False,
    org_id: str | None = None,
) -> Response:
    """Points of a metric from one step to another, in their order; at most ``points`` of them.

    Where there are more, these are the lowest and the highest value of each part of the range, and
    its first and last point. Ask again for a shorter range to see more of it. Without ``task``, it
    is the first task that has reported this metric. ``earlier`` gives the points of earlier attempts
    that a later one has repeated.
    """
    record = await _find(here, call, name, org_id)
    found = await here.offload(
        here.job_metrics.points,
        reporter_of(record),
        metric,
        task=task,
        low=low,
        high=high,
        points=points,
        earlier=earlier,
    )
    return documents.answer_numbers(found)


async def _find(here: Here, call: Call, name: str, org_id: str | None) -> TrainJobRecord:
    def find() -> TrainJobRecord:
        return here.jobs.find(here.identities.scope(call.caller, org_id), name)

    return await here.read(find)
