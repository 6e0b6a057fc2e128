"""``/cloud_ml/v1/hp``: studies, as the original client submits and reads them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from cloud_ml.api import documents, streams
from cloud_ml.api.auth import Call, Signed
from cloud_ml.api.platform import Platform
from cloud_ml.api.routes import Here
from cloud_ml.domain.jobs.kind import TRAIN_JOB, TrainJobRecord
from cloud_ml.domain.studies.spec import STUDY, StudyRecord, trial_name
from cloud_ml.errors import NotFound
from cloud_ml.models import common
from cloud_ml.models.studies.hp_documents import read_hp_document
from cloud_ml.models.studies.study import STUDIES
from cloud_ml.usecases.jobs import views
from cloud_ml.usecases.jobs.logs import MOST_LINES, Selection
from cloud_ml.usecases.jobs.tasks import tasks_of
from cloud_ml.usecases.studies import hp_views, original_tunings

router = APIRouter(prefix="/hp", default_response_class=Response)

_NEWEST = 1000


@router.post("")
async def submit(here: Here, call: Signed) -> Response:
    """Take a study. Fields that we do not know are ignored, and its events say so."""
    submission = read_hp_document(documents.read_object(call.body))
    study = original_tunings.OriginalStudy(**vars(submission.study))
    capacity = await here.engine.capacity()

    def take() -> dict[str, Any]:
        record = here.resources_of[STUDIES.plural].create(
            call.caller, study, capacity, once=call.once, notes=submission.notes
        )
        return hp_views.hp_document(record, call.caller.organisation)

    return documents.answer(await here.offload(take))


@router.get("")
async def list_studies(here: Here, call: Signed, org_id: str | None = None) -> Response:
    """The newest studies."""

    def rows() -> list[dict[str, Any]]:
        scope = here.identities.scope(call.caller, org_id)
        page = here.store.list(STUDY, org=scope, limit=_NEWEST)
        organisation = here.identities.organisation
        return [hp_views.hp_row(line, organisation(line.key.org)) for line in page.items]

    return documents.answer({"data": await here.offload(rows)})


@router.get("/{name}")
async def describe(here: Here, call: Signed, name: str, org_id: str | None = None) -> Response:
    """One study."""

    def look() -> dict[str, Any]:
        record = _find(here, call, name, org_id)
        return hp_views.hp_document(record, here.identities.organisation(record.key.org))

    return documents.answer(await here.offload(look))


@router.delete("/{name}")
async def delete(here: Here, call: Signed, name: str, org_id: str | None = None) -> Response:
    """Ask for the removal of a study and its trials."""

    def remove() -> dict[str, Any]:
        scope = here.identities.scope(call.caller, org_id)
        studies = here.resources_of[STUDIES.plural]
        record = studies.delete(scope, name, call.caller, once=call.once)
        message = f"{record.key.name} and its trials are being deleted"
        return {"hp_name": record.key.name, "state": "deleting", "message": message}

    return documents.answer(await here.offload(remove))


@router.get("/{name}/trials")
async def trials(here: Here, call: Signed, name: str, org_id: str | None = None) -> Response:
    """The trials of a study, and the best of them."""

    def look() -> dict[str, Any]:
        return dict(original_tunings.trials_of(_find(here, call, name, org_id)))

    return documents.answer(await here.offload(look))


@router.get("/{name}/events")
async def events(here: Here, call: Signed, name: str, org_id: str | None = None) -> Response:
    """Events of a study."""

    def read_events() -> dict[str, Any]:
        record = _find(here, call, name, org_id)
        return views.events_document(name, here.store.events(record.key.uid, after=0))

    return documents.answer(await here.offload(read_events))


@router.get("/{name}/metrics")
async def metrics(here: Here, call: Signed, name: str, org_id: str | None = None) -> Response:
    """What the trials that run use now, together: percent of one core, bytes of memory."""

    def running() -> list[TrainJobRecord]:
        record = _find(here, call, name, org_id)
        found = [_job(here, record, trial.number) for trial in record.status.running]
        return [job for job in found if job is not None]

    used = [
        views.metrics_document(await tasks_of(job, here.engine))
        for job in await here.offload(running)
    ]
    whole = dict.fromkeys(("cpu", "memory", "network_receive", "network_transmit"), 0)
    return documents.answer({key: round(sum(one[key] for one in used), 1) for key in whole})


@router.get("/{name}/{trial}/logs")
async def logs(
    here: Here, call: Signed, request: Request, name: str, trial: str, *, org_id: str | None = None
) -> Response:
    """The log of a trial, which is named by its number or by its job."""
    query = request.query_params
    lines = query.get("lines")
    selection = Selection(
        lines=None
        if lines is None
        else common.check_count("lines", lines, least=0, most=MOST_LINES),
        follow=query.get("follow", "").lower() in ("true", "1"),
    )

    def find() -> TrainJobRecord:
        record = _find(here, call, name, org_id)
        number = trial.removeprefix(trial_name(record.key.name, 0)[:-1])
        known = number.isascii() and number.isdecimal() and len(number) < len(trial_name("", 9999))
        job = _job(here, record, int(number)) if known else None
        if job is None:
            shown = trial[:80]
            raise NotFound(f"{name} has no trial {shown}", field="trial_id", value=shown)
        return job

    chunks = here.logs.read(await here.offload(find), selection)
    return streams.text(chunks) if selection.follow else streams.text_in_json("logs", chunks)


def _find(here: Platform, call: Call, name: str, org_id: str | None) -> StudyRecord:
    scope = here.identities.scope(call.caller, org_id)
    record: StudyRecord = here.resources_of[STUDIES.plural].find(scope, name)
    return record


def _job(here: Platform, record: StudyRecord, number: int) -> TrainJobRecord | None:
    """The job of a trial, if there is one."""
    job = here.store.find(TRAIN_JOB, record.key.org, trial_name(record.key.name, number))
    own = job is not None and job.parent is not None and job.parent.uid == record.key.uid
    return job if own else None
