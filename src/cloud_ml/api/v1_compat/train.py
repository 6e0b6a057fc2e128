"""``/cloud_ml/v1/train``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from cloud_ml.api import documents, streams
from cloud_ml.api.auth import Call, Signed, SignedMutation
from cloud_ml.api.platform import Platform
from cloud_ml.api.routes import Here
from cloud_ml.api.v1_compat import tunings
from cloud_ml.domain.jobs.kind import TRAIN_JOB, TrainJobRecord
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.errors import Conflict, NotFound
from cloud_ml.models import codec, common
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.usecases import usage
from cloud_ml.usecases.jobs import views
from cloud_ml.usecases.jobs.logs import MOST_LINES, Selection
from cloud_ml.usecases.jobs.tasks import tasks_of
from cloud_ml.usecases.studies import original_tunings

router = APIRouter(prefix="/train", default_response_class=Response)

_NEWEST = 1000
_MOST_ROWS = 2000
"""Of a list. Beyond them, jobs are shown without their members."""
_MOST_NOTES = 20
_KNOWN = frozenset(field.name for field in dataclasses.fields(TrainJob))


@router.post("")
async def submit(here: Here, call: Signed) -> Response:
    """Take a job. Fields that we do not know are ignored, and the job's events say so."""
    document = documents.read_object(call.body)
    job = codec.decode(TrainJob, document, ignore_unknown=True)
    capacity = await here.engine.capacity()
    if job.hyperparameters:
        tuning = await here.offload(
            tunings.submit, here, call, original_tunings.tuning_of(job), capacity
        )
        return documents.answer(tuning)

    def take() -> dict[str, Any]:
        record = here.jobs.submit(
            call.caller,
            job,
            capacity,
            notes=describe_ignored(document),
            add_arguments=False,
            refuse_uris=False,
            once=call.once,
        )
        return views.train_document(record, call.caller.organisation)

    return documents.answer(await here.offload(take))


@router.get("")
async def list_jobs(here: Here, call: Signed, org_id: str | None = None) -> Response:
    """The newest jobs, each before its members."""

    def rows() -> list[dict[str, Any]]:
        page = here.jobs.list(here.identities.scope(call.caller, org_id), limit=_NEWEST)
        found = []
        for line in page.items:
            row = views.train_row(line, here.identities.organisation(line.key.org))
            found.append(row)
            if len(found) >= _MOST_ROWS:
                continue
            for name, phase in here.member_lists.members_of(line):
                state = views.wire_state(phase, deleting=line.deleting)
                found.append(row | {"job_name": name, "state": state})
        return found

    return documents.answer({"data": await here.offload(rows)})


@router.get("/{name}")
async def describe(here: Here, call: Signed, name: str, org_id: str | None = None) -> Response:
    """One job."""

    def look() -> dict[str, Any]:
        scope = here.identities.scope(call.caller, org_id)
        try:
            record, task = here.jobs.find_member(scope, name)
        except NotFound:
            if (tuning := tunings.find(here, scope, name)) is None:
                raise
            return views.tuning_document(tuning, here.identities.organisation(tuning.key.org))
        document = views.train_document(record, here.identities.organisation(record.key.org), task)
        return document | tunings.fields_of_trial(here, record)

    return documents.answer(await here.offload(look))


@router.get("/{name}/start")
async def start(here: Here, call: SignedMutation, name: str) -> Response:
    """Queue a saved job: a GET that changes something."""

    def begin() -> dict[str, Any]:
        return _document(here, here.jobs.start(call.org, name, call.caller, once=call.once))

    return documents.answer(await here.offload(begin))


@router.delete("/{name}")
async def delete(here: Here, call: Signed, name: str, org_id: str | None = None) -> Response:
    """Ask for a job's removal. A cluster's name (``is_cluster_name``) is the name its job was
    submitted under.
    """

    def remove() -> dict[str, Any]:
        scope = here.identities.scope(call.caller, org_id)
        try:
            whole, task = here.jobs.find_member(scope, name)
        except NotFound:
            if tunings.find(here, scope, name) is None:
                raise
            return tunings.delete(here, call, scope, name)
        if task is not None:
            raise Conflict(
                f"{name} belongs to {whole.key.name} and cannot be deleted alone",
                field="job_name",
                value=name,
                allowed=whole.key.name,
            )
        record = here.jobs.delete(scope, name, call.caller, once=call.once)
        return {
            "job_name": record.key.name,
            "state": "deleting",
            "message": f"{record.key.name} is being deleted",
        }

    return documents.answer(await here.offload(remove))


@router.get("/{name}/logs")
async def logs(
    here: Here, call: Signed, request: Request, name: str, org_id: str | None = None
) -> Response:
    """``{"logs": text}``, or with ``follow`` a plain stream until the job has ended."""
    query = request.query_params
    lines = query.get("lines")
    record, task = await _find(here, call, name, org_id)
    selection = Selection(
        task=task,
        lines=None
        if lines is None
        else common.check_count("lines", lines, least=0, most=MOST_LINES),
        follow=query.get("follow", "").lower() in ("true", "1"),
    )
    chunks = here.logs.read(record, selection)
    return streams.text(chunks) if selection.follow else streams.text_in_json("logs", chunks)


@router.get("/{name}/events")
async def events(here: Here, call: Signed, name: str, org_id: str | None = None) -> Response:
    """Events of a job; while it waits, also what is free on this server."""
    capacity = await here.engine.capacity()

    def read_events() -> dict[str, Any]:
        scope = here.identities.scope(call.caller, org_id)
        try:
            record, task = here.jobs.find_member(scope, name)
        except NotFound:
            if (tuning := tunings.find(here, scope, name)) is None:
                raise
            return views.events_document(name, here.store.events(tuning.key.uid, after=0))
        waits = record.status.phase is Phase.QUEUED
        free = (
            usage.free(capacity, usage.measure_use(here.store, None, TRAIN_JOB)) if waits else None
        )
        return views.events_document(
            record.key.name if task is None else name, here.jobs.events(record), free
        )

    return documents.answer(await here.offload(read_events))


@router.get("/{name}/metrics")
async def metrics(here: Here, call: Signed, name: str, org_id: str | None = None) -> Response:
    """What a job or a task uses now: processor in percent of one core, memory in bytes."""
    record, task = await _find(here, call, name, org_id)
    found = await tasks_of(record, here.engine)
    if task is not None:
        own = [one for one in found.items if one.name == task]
        found = dataclasses.replace(found, items=own)
    return documents.answer(views.metrics_document(found))


@router.get("/{name}/hyperparameters")
async def hyperparameters(
    here: Here, call: Signed, name: str, org_id: str | None = None
) -> Response:
    """The report of a tuning, by its name or by that of a trial."""

    def report() -> Mapping[str, Any]:
        scope = here.identities.scope(call.caller, org_id)
        if (tuning := tunings.find(here, scope, name)) is None:
            record, _ = here.jobs.find_member(scope, name)
            tuning = tunings.of_trial(here, record)
        if tuning is None:
            raise NotFound(
                f"{name} is not a tuning of hyper-parameters", field="job_name", value=name
            )
        return original_tunings.report_of(tuning)

    return documents.answer(await here.offload(report))


def describe_ignored(document: dict[str, Any]) -> list[str]:
    """Sentences about the fields that we do not know."""
    names = [name for name in document if name not in _KNOWN]
    notes = [
        f"the field {name[:80]!r} is not known to this server and was ignored"
        for name in names[:_MOST_NOTES]
    ]
    if len(names) > _MOST_NOTES:
        notes.append(f"{len(names) - _MOST_NOTES} more unknown fields were ignored")
    return notes


async def _find(
    here: Platform, call: Call, name: str, org_id: str | None
) -> tuple[TrainJobRecord, str | None]:
    def find() -> tuple[TrainJobRecord, str | None]:
        return here.jobs.find_member(here.identities.scope(call.caller, org_id), name)

    return await here.offload(find)


def _document(here: Platform, record: TrainJobRecord) -> dict[str, Any]:
    return views.train_document(record, here.identities.organisation(record.key.org))
