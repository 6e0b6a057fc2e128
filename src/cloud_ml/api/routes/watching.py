"""Server-sent events: each change of a job or a model service, as it happens."""

from __future__ import annotations

import functools

from fastapi import APIRouter
from starlette.responses import Response

from cloud_ml.api import event_streams, record_streams
from cloud_ml.api.auth import Signed
from cloud_ml.api.openapi import events
from cloud_ml.api.platform import Platform
from cloud_ml.api.routes import CHECKED, Here
from cloud_ml.api.sse import Start
from cloud_ml.domain.jobs.kind import TRAIN_JOB, TrainJobRecord
from cloud_ml.domain.jobs.spec import JobSpec
from cloud_ml.domain.services.kind import MODEL_SERVICE, ServiceRecord
from cloud_ml.domain.services.spec import ServiceSpec
from cloud_ml.domain.services.status import ServiceStatus
from cloud_ml.domain.workloads.phases import WorkloadStatus
from cloud_ml.models.jobs.job import JobChange
from cloud_ml.models.services.service import ServiceChange
from cloud_ml.usecases.feed import RecordChange
from cloud_ml.usecases.jobs import views
from cloud_ml.usecases.models import views as service_views

router = APIRouter(
    prefix="/api/v1/jobs", tags=["jobs"], default_response_class=Response, dependencies=CHECKED
)
models = APIRouter(
    prefix="/api/v1/models", tags=["models"], default_response_class=Response, dependencies=CHECKED
)


@router.get("/-/watch", responses=events())
async def watch_jobs(
    here: Here,
    call: Signed,
    start: Start,
    org_id: str | None = None,
) -> Response:
    """Changes of all jobs, as server-sent events.

    Each event is a ``JobChange`` under the id of its revision. The stream begins behind
    ``Last-Event-ID``, else behind ``after`` (the ``revision`` of a list), else now. After a restore
    of the database, revisions of before are refused (410): list anew. It ends after an hour and
    when the server stops: ask again from the last id. Who is slow is told the newest state of what
    changed, not each step.
    """
    return await record_streams.of_all(
        here, call, TRAIN_JOB, _job, start=start, org_id=org_id, word="job"
    )


@router.get("/{name}/watch", responses=events())
async def watch_job(
    here: Here,
    call: Signed,
    name: str,
    *,
    start: Start,
    org_id: str | None = None,
) -> Response:
    """How a job stands, and then each change of it, as server-sent events; ends when it is gone."""

    def find() -> TrainJobRecord:
        return here.jobs.find(here.identities.scope(call.caller, org_id), name)

    return await record_streams.of_one(here, find, TRAIN_JOB, _job, start=start, word="job")


@router.get("/{name}/events/watch", responses=events())
async def watch_events(
    here: Here,
    call: Signed,
    name: str,
    *,
    start: Start,
    org_id: str | None = None,
) -> Response:
    """What is said about a job, as server-sent events, until it has ended.

    Each is a ``JobEvent`` under its id; the stream begins behind ``Last-Event-ID``, else behind
    ``after``, else with the first. One of the kind ``end`` says that there will be no more; without
    it, ask again from the last id.
    """

    def find() -> TrainJobRecord:
        return here.jobs.find(here.identities.scope(call.caller, org_id), name)

    return event_streams.of_job(here, await here.offload(find), start or 0)


@models.get("/-/watch", responses=events())
async def watch_services(
    here: Here,
    call: Signed,
    start: Start,
    org_id: str | None = None,
) -> Response:
    """Changes of all model services, as server-sent events.

    Each event is a ``ServiceChange`` under the id of its revision, and otherwise as in the stream
    of all jobs. Load and replicas of a service are not told: ask for the service.
    """
    document = functools.partial(_service, here)
    return await record_streams.of_all(
        here, call, MODEL_SERVICE, document, start=start, org_id=org_id, word="service"
    )


@models.get("/{name}/{version}/watch", responses=events())
async def watch_service(
    here: Here,
    call: Signed,
    name: str,
    version: str,
    *,
    start: Start,
    org_id: str | None = None,
) -> Response:
    """How a service stands, and then each change of it, as server-sent events; ends when it is
    gone.
    """

    def find() -> ServiceRecord:
        return here.services.find(here.identities.scope(call.caller, org_id), name, version)

    document = functools.partial(_service, here)
    return await record_streams.of_one(
        here, find, MODEL_SERVICE, document, start=start, word="service"
    )


async def _job(one: RecordChange[JobSpec, WorkloadStatus]) -> JobChange:
    job = None if one.record is None else views.job(one.record)
    return JobChange(revision=one.revision, uid=one.uid, name=one.name, org=one.org, job=job)


async def _service(here: Platform, one: RecordChange[ServiceSpec, ServiceStatus]) -> ServiceChange:
    name, _, version = one.name.partition("/")
    service = None
    if one.record is not None:
        service = service_views.service(one.record, None, here.services_host, tls=here.services_tls)
    return ServiceChange(
        revision=one.revision, uid=one.uid, name=name, version=version, org=one.org, service=service
    )
