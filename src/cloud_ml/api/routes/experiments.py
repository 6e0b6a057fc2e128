"""``/api/v1/experiments``: groups of runs."""

from __future__ import annotations

import asyncio
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
from cloud_ml.domain.tracking.runs import Experiment, RunState
from cloud_ml.errors import NotFound
from cloud_ml.models.tracking.run import ExperimentChange, ExperimentPage, RunExperiment, RunPage
from cloud_ml.usecases.tracking.experiment_feed import ChangedExperiment, change_of
from cloud_ml.usecases.tracking.views import experiment_view, run_document

router = APIRouter(
    prefix="/api/v1",
    tags=["runs"],
    default_response_class=Response,
    dependencies=CHECKED,
)
_SHOWN = 10
_ENDED = ", ".join(f"'{state.value}'" for state in RunState if state.ended)
_ACTIVE = f"attributes.status NOT IN ({_ENDED})"


@router.get("/experiments", responses=answers(ExperimentPage))
async def list_experiments(
    here: Here,
    call: Signed,
    *,
    limit: Annotated[int, Query(ge=1)] = 50,
    after: Annotated[str | None, Query(max_length=100)] = None,
) -> Response:
    """The experiments of the caller's organisation that are not deleted, newest first."""
    check_limit(limit, here.settings.list_page_limit)

    def page() -> ExperimentPage:
        revision = here.store.revision()  # before the search: who watches from here misses nothing
        found, following = here.experiments.page(call.org, after=after, limit=limit)
        items = [experiment_view(one) for one in found]
        return ExperimentPage(items=items, next=following, revision=revision)

    return documents.answer(await here.offload(page))


@router.get("/experiments/-/watch", responses=events())
async def watch_experiments(
    here: Here, call: Signed, start: Start, org_id: str | None = None
) -> Response:
    """Changes of all experiments, as server-sent events.

    Each event is an ``ExperimentChange`` under the id of its revision. An experiment changes when
    it is made, with its name and its tags, and when it is deleted or restored; its runs are not
    told. Otherwise it is as in the stream of all jobs.
    """
    return await record_streams.of_feed(
        here, call, here.experiment_feed, _change, start=start, org_id=org_id, word="experiment"
    )


@router.get("/experiments/{experiment}", responses=answers(RunExperiment))
async def describe_experiment(
    here: Here, call: Signed, experiment: str, *, wait: Wait = 0, revision: int | None = None
) -> Response:
    """An experiment by its id.

    With ``wait``, the answer comes as soon as the experiment's revision is another one than
    ``revision`` (or than the present one), at the latest after so many seconds, as it stands then.
    """
    check_wait(here, wait)
    found = await here.offload(_find, here, call.org, experiment)
    if wait and revision in (None, found.revision):
        await _wait_for_change(here, found, wait)
        found = await here.offload(_find, here, call.org, experiment)
    return documents.answer(experiment_view(found))


@router.get("/experiments/{experiment}/watch", responses=events())
async def watch_experiment(here: Here, call: Signed, experiment: str, *, start: Start) -> Response:
    """How an experiment stands, and then each change of it, as server-sent events."""

    def find() -> ChangedExperiment:
        return change_of(_find(here, call.org, experiment))

    return await record_streams.one_of_feed(
        here, find, here.experiment_feed, _change, start=start, word="experiment"
    )


@router.get("/experiments/{experiment}/active", responses=answers(RunPage))
async def list_active_runs(
    here: Here, call: Signed, experiment: str, *, wait: Wait = 0
) -> Response:
    """The newest runs of an experiment that have not ended, at most ten, without what they logged.

    With ``wait``, the answer comes as soon as there is none, at the latest after so many seconds.
    ``next`` is set if there are more.
    """
    check_wait(here, wait)
    await here.offload(_find, here, call.org, experiment)
    until = asyncio.get_running_loop().time() + wait
    while True:
        page = await _active_runs(here, call.org, experiment)
        left = until - asyncio.get_running_loop().time()
        if not page["items"] or left <= 0 or here.hub.closed:
            return documents.answer_numbers(page)
        await _wait_for_end(here, page["items"][0]["uid"], experiment, left)


def _find(here: Platform, org: str, id_: str) -> Experiment:
    """The experiment of that id.

    Raises:
        NotFound: There is none. If one has that name, the hint is its id.
    """
    try:
        return here.experiments.get(org, id_)
    except NotFound as missing:
        if (named := here.experiments.find_named(org, id_)) is not None:
            missing.hint = f"An experiment has that name; its id is {named.id}."
        raise


async def _active_runs(here: Platform, org: str, experiment: str) -> dict[str, Any]:
    """The page of those, looked for once for all who wait for it at the moment."""

    def search() -> dict[str, Any]:
        revision = here.store.revision()  # before the search, as for lists
        found, following = here.runs.search(
            org, experiments=[experiment], text=_ACTIVE, limit=_SHOWN, metrics=()
        )
        names = {experiment: here.experiments.get(org, experiment).name}
        items = [run_document(one, names, ()) for one in found]
        return {"items": items, "next": following, "revision": revision}

    async def make() -> dict[str, Any]:
        return await here.offload.long(org, search)

    return await here.experiment_feed.make_once(("active", org, experiment), make)


async def _wait_for_end(here: Platform, uid: str, experiment: str, timeout_s: float) -> None:
    """Return once a run has ended, is deleted or is of another experiment, or time is over."""
    loop = asyncio.get_running_loop()
    until = loop.time() + timeout_s
    with here.hub.watch(uid) as watch:
        while (left := until - loop.time()) > 0 and not watch.closed:
            run = await here.offload(here.store.tracking.run, uid)
            if run is None or run.state.ended or run.deleted or run.experiment != experiment:
                return
            await watch.wait(left)


async def _wait_for_change(here: Platform, experiment: Experiment, timeout_s: float) -> None:
    """Return with the next change of an experiment, or after so many seconds."""
    changes = here.experiment_feed.watch(
        experiment.org, uid=experiment.id, after=experiment.revision, heartbeat_s=timeout_s
    )
    ends = {asyncio.ensure_future(anext(changes)), asyncio.ensure_future(here.hub.until_closed())}
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in ends:
            one.cancel()
        await asyncio.gather(*ends, return_exceptions=True)
        await changes.aclose()


async def _change(one: ChangedExperiment) -> ExperimentChange:
    view = experiment_view(one.experiment)
    return ExperimentChange(revision=one.revision, id=one.uid, org=one.org, experiment=view)
