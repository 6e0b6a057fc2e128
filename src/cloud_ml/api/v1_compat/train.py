"""``/cloud_ml/v1/train``."""

from __future__ import annotations

import dataclasses
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from cloud_ml.api import documents, streams
from cloud_ml.api.auth import Call, Signed, SignedMutation
from cloud_ml.api.platform import Platform
from cloud_ml.api.routes import Here
from cloud_ml.domain.jobs.kind import TRAIN_JOB, TrainJobRecord
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.errors import NotFound
from cloud_ml.models import codec, common
from cloud_ml.models.train_job import TrainJob
from cloud_ml.usecases import usage
from cloud_ml.usecases.jobs import views
from cloud_ml.usecases.jobs.logs import MOST_LINES, Selection
from cloud_ml.usecases.jobs.tasks import tasks_of

router = APIRouter(prefix="/train", default_response_class=Response)

_NEWEST = 1000
_MOST_NOTES = 20
_KNOWN = frozenset(field.name for field in dataclasses.fields(TrainJob))


@router.post("")
async def submit(here: Here, call: Signed) -> Response:
    """Take a job. Fields that we do not know are ignored, and the job's events say so."""
    document = documents.read_object(call.body)
    job = codec.decode(TrainJob, document, ignore_unknown=True)
    capacity = await here.engine.capacity()

    def take() -> dict[str, Any]:
        record = here.jobs.submit(
            call.caller,
            job,
            capacity,
            notes=ignored(document),
            add_arguments=False,
            refuse_uris=False,
            once=call.once,
        )
        return views.train_document(record, call.caller.organisation)

    return documents.answer(await here.offload(take))


@router.get("")
async def list_jobs(here: Here, call: Signed, org_id: str | None = None) -> Response:
    """The newest jobs."""

    def rows() -> list[dict[str, Any]]:
        page = here.jobs.list(here.identities.scope(call.caller, org_id), limit=_NEWEST)
        return [
            views.train_row(line, here.identities.organisation(line.key.org)) for line in page.items
        ]

    return documents.answer({"data": await here.offload(rows)})


@router.get("/{name}")
async def describe(here: Here, call: Signed, name: str, org_id: str | None = None) -> Response:
    """One job."""

    def look() -> dict[str, Any]:
        return _document(here, here.jobs.find(here.identities.scope(call.caller, org_id), name))

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
    record = await _find(here, call, name, org_id)
    selection = Selection(
        lines=None
        if lines is None
        else common.check_count("lines", lines, least=0, most=MOST_LINES),
        follow=query.get("follow", "").lower() in ("true", "1"),
    )
    chunks = here.logs.read(record, selection)
    return streams.text(chunks) if selection.follow else streams.text_in_json("logs", chunks)


@router.get("/{name}/events")
async def events(here: Here, call: Signed, name: str, org_id: str | None = None) -> Response:
    """What was said about a job; while it waits, also what is free on this server."""
    capacity = await here.engine.capacity()

    def said() -> dict[str, Any]:
        record = here.jobs.find(here.identities.scope(call.caller, org_id), name)
        waits = record.status.phase is Phase.QUEUED
        free = usage.free(capacity, usage.used(here.store, None, TRAIN_JOB)) if waits else None
        return views.events_document(record.key.name, here.jobs.events(record), free)

    return documents.answer(await here.offload(said))


@router.get("/{name}/metrics")
async def metrics(here: Here, call: Signed, name: str, org_id: str | None = None) -> Response:
    """What a job uses now: its processor share in percent of one core, its memory in bytes."""
    record = await _find(here, call, name, org_id)
    return documents.answer(views.metrics_document(await tasks_of(record, here.engine)))


@router.get("/{name}/hyperparameters")
async def hyperparameters(
    here: Here, call: Signed, name: str, org_id: str | None = None
) -> Response:
    """The report of a tuning; jobs of this server are none."""
    record = await _find(here, call, name, org_id)
    raise NotFound(
        f"{record.key.name} is not a tuning of hyper-parameters",
        field="job_name",
        value=record.key.name,
    )


def ignored(document: dict[str, Any]) -> list[str]:
    """Sentences about the fields that we do not know."""
    names = [name for name in document if name not in _KNOWN]
    notes = [
        f"the field {name[:80]!r} is not known to this server and was ignored"
        for name in names[:_MOST_NOTES]
    ]
    if len(names) > _MOST_NOTES:
        notes.append(f"{len(names) - _MOST_NOTES} more unknown fields were ignored")
    return notes


async def _find(here: Platform, call: Call, name: str, org_id: str | None) -> TrainJobRecord:
    def find() -> TrainJobRecord:
        return here.jobs.find(here.identities.scope(call.caller, org_id), name)

    return await here.offload(find)


def _document(here: Platform, record: TrainJobRecord) -> dict[str, Any]:
    return views.train_document(record, here.identities.organisation(record.key.org))
