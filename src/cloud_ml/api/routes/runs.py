"""``/api/v1/runs``: jobs as runs, and runs without a job."""

from __future__ import annotations

import functools
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from cloud_ml.api import documents, record_streams
from cloud_ml.api.auth import Signed
from cloud_ml.api.long_polls import Wait, check_wait
from cloud_ml.api.openapi import answers, events
from cloud_ml.api.parameters import check_limit
from cloud_ml.api.platform import Platform
from cloud_ml.api.routes import CHECKED, Here
from cloud_ml.api.sse import Start
from cloud_ml.domain.metrics.points import LARGEST_STEP
from cloud_ml.domain.records import Record
from cloud_ml.domain.tracking.runs import RUN, RunRow
from cloud_ml.errors import NotFound
from cloud_ml.models import common
from cloud_ml.models.tracking.comparison import RunComparison
from cloud_ml.models.tracking.metrics import JobSeries, MetricPoints
from cloud_ml.models.tracking.run import Run, RunChange, RunPage
from cloud_ml.usecases.feed import RecordChange
from cloud_ml.usecases.metrics.job_metrics import Reporter
from cloud_ml.usecases.tracking.runs import LoggedRun, kind_of
from cloud_ml.usecases.tracking.views import run_document, run_view

router = APIRouter(
    prefix="/api/v1",
    tags=["runs"],
    default_response_class=Response,
    dependencies=CHECKED,
)
_MOST_COLUMNS = 20


@router.get("/runs", responses=answers(RunPage))
async def list_runs(
    here: Here,
    call: Signed,
    *,
    experiment: Annotated[str | None, Query(max_length=500)] = None,
    filter: Annotated[str, Query(max_length=65_536)] = "",  # noqa: A002
    order_by: Annotated[list[str] | None, Query(max_length=10)] = None,
    columns: Annotated[str | None, Query(max_length=10_000)] = None,
    limit: Annotated[int, Query(ge=1)] = 50,
    after: Annotated[int | None, Query(ge=0, le=2**62)] = None,
) -> Response:
    """Jobs and other runs, newest first, or in the order of ``order_by`` (``metrics.loss ASC``).

    ``filter`` has the language of MLflow: ``metrics.loss < 0.1 AND params.optimizer = 'adam'``.
    ``columns`` names metrics and parameters, separated by commas; without it all are shown.
    """
    check_limit(limit, here.settings.list_page_limit)
    names = _columns(columns)

    def page() -> dict[str, Any]:
        revision = here.store.revision()  # before the search: who watches from here misses nothing
        group = None if experiment is None else here.experiments.named(call.org, experiment)
        found, following = here.runs.search(
            call.org,
            experiments=None if group is None else [group.id],
            text=filter,
            order=order_by or (),
            after=after,
            limit=limit,
            metrics=names,
        )
        known = {one.id: one.name for one in here.experiments.all(call.org)}
        items = [run_document(one, known, names) for one in found]
        return {"items": items, "next": following, "revision": revision}

    return documents.answer_numbers(await here.offload.long(call.org, page))


@router.get("/runs/compare", responses=answers(RunComparison))
async def compare_runs(
    here: Here,
    call: Signed,
    *,
    run: Annotated[list[str], Query(max_length=10)] = [],  # noqa: B006 - FastAPI's way
    metric: Annotated[str | None, Query(max_length=500)] = None,
) -> Response:
    """What runs differ in: ``run`` names two to ten jobs or other runs, by name or uid.

    The differences with the largest likely effect on ``metric`` come first. Other runs of the
    experiment tell the effects; without enough of them, the answer says so.
    """
    found = await here.offload.long(call.org, here.comparisons.compare, call.org, run, metric)
    return documents.answer(found)


@router.get("/runs/-/watch", responses=events())
async def watch_runs(here: Here, call: Signed, start: Start, org_id: str | None = None) -> Response:
    """Changes of all runs without a job, as server-sent events; those of jobs are in the stream of
    all jobs.

    Each event is a ``RunChange`` under the id of its revision. A run changes with its name, its
    state, its end, and when it is deleted or restored; what is logged is not told. Otherwise it is
    as in the stream of all jobs.
    """
    document = functools.partial(_change, here)
    return await record_streams.of_all(
        here, call, RUN, document, start=start, org_id=org_id, word="run"
    )


@router.get("/runs/{run}", responses=answers(Run))
async def describe_run(
    here: Here, call: Signed, run: str, *, wait: Wait = 0, revision: int | None = None
) -> Response:
    """A run by its uid.

    With ``wait``, the answer comes as soon as the run's revision is another one than ``revision``
    (or than the present one), at the latest after so many seconds, as the run stands then. What is
    logged gives it no other revision.
    """
    check_wait(here, wait)
    if wait:

        def find() -> RunRow:
            return here.runs.find(call.org, run)

        known_revision = (await here.offload(find)).revision if revision is None else revision
        await here.hub.newer(run, known_revision, find, timeout_s=wait)
    return documents.answer(await here.offload(_describe, here, call.org, run))


@router.get("/runs/{run}/watch", responses=events())
async def watch_run(here: Here, call: Signed, run: str, *, start: Start) -> Response:
    """How a run stands, and then each change of it, as server-sent events; ends when it is gone.

    What is logged is not told. A run that is a job changes with it.
    """

    def find() -> Record[Any, Any]:
        return here.runs.record(call.org, run)

    row = await here.offload(here.runs.find, call.org, run)
    document = functools.partial(_change, here)
    return await record_streams.of_one(here, find, kind_of(row), document, start=start, word="run")


@router.delete("/runs/{run}", responses=answers(Run))
async def delete_run(here: Here, call: Signed, run: str) -> Response:
    """Remove a run without a job, with its metrics. Its artifacts stay in the bucket."""

    def remove() -> Run:
        return _view(here, call.org, here.runs.remove(call.caller, run, once=call.once))

    return documents.answer(await here.offload(remove))


@router.get("/runs/{run}/series", responses=answers(JobSeries))
async def list_series_of_run(here: Here, call: Signed, run: str) -> Response:
    """The metrics of a run: how many points each has, its extremes and its last value."""

    def series() -> JobSeries:
        return here.job_metrics.series(_reporter(here, call.org, run))

    return documents.answer(await here.offload(series))


@router.get("/runs/{run}/series/{metric:path}", responses=answers(MetricPoints))
async def points_of_run(
    here: Here,
    call: Signed,
    run: str,
    metric: str,
    *,
    low: Annotated[int | None, Query(alias="from", ge=-LARGEST_STEP, le=LARGEST_STEP)] = None,
    high: Annotated[int | None, Query(alias="to", ge=-LARGEST_STEP, le=LARGEST_STEP)] = None,
    points: int = 1000,
    task: str | None = None,
    source: str | None = None,
    after: str | None = None,
) -> Response:
    """Points of a metric of a run, as for a job.

    With ``after``, all points as they came, page by page: ``0.0`` asks for the first page, and then
    ``next`` of the page before.
    """

    def found() -> dict[str, Any]:
        reporter = _reporter(here, call.org, run)
        if after is not None:
            return here.job_metrics.page(
                reporter, metric, task=task, source=source, token=after, points=points
            )
        return here.job_metrics.points(
            reporter, metric, task=task, low=low, high=high, points=points
        )

    return documents.answer_numbers(await here.offload(found))


def _reporter(here: Platform, org: str, run: str) -> Reporter:
    row = here.runs.find(org, run)
    return Reporter(row.uid, row.name, what="run")


def _describe(here: Platform, org: str, uid: str) -> Run:
    return _view(here, org, here.runs.describe(org, uid))


def _view(here: Platform, org: str, run: LoggedRun) -> Run:
    names = {}
    with suppress(NotFound):
        names[run.row.experiment] = here.experiments.get(org, run.row.experiment).name
    return run_view(run, names)


async def _change(here: Platform, one: RecordChange[Any, Any]) -> RunChange | None:
    """How the run of a changed record stands; ``None`` if it went meanwhile, which the stream tells
    next.
    """
    run = None
    if one.record is not None:
        try:
            run = await here.offload(_describe, here, one.org, one.uid)
        except NotFound:
            return None
    return RunChange(revision=one.revision, uid=one.uid, org=one.org, run=run)


def _columns(text: str | None) -> list[str] | None:
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if len(names) > _MOST_COLUMNS:
        raise common.refuse("columns", f"{len(names)} names", f"at most {_MOST_COLUMNS} names")
    return names
