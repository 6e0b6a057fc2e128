"""``/api/v1/models``: what replicas say and use, what can be asked of them, and where their
model came from.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from cloud_ml.api import documents, streams
from cloud_ml.api.auth import Call, Signed
from cloud_ml.api.openapi import answers, bytes_of
from cloud_ml.api.platform import Platform
from cloud_ml.api.routes import CHECKED, Here
from cloud_ml.domain.services.kind import ServiceRecord
from cloud_ml.engines.abilities import LogView
from cloud_ml.models.services.service import ServiceLineage, ServiceMetrics, ServiceSignatures
from cloud_ml.usecases.jobs.logs import Selection
from cloud_ml.usecases.models import releasing, replicas
from cloud_ml.usecases.models.replicas import Replicas

router = APIRouter(
    prefix="/api/v1/models", tags=["models"], default_response_class=Response, dependencies=CHECKED
)


@router.get("/{name}/{version}/logs", responses=bytes_of("text/plain"))
async def logs(
    here: Here,
    call: Signed,
    name: str,
    version: str,
    *,
    replica: Annotated[int | None, Query(ge=1, lt=2**31)] = None,
    previous: bool = False,
    lines: int | None = None,
    follow: bool = False,
    attempt: int | None = None,
    offset: Annotated[int, Query(ge=0, lt=2**62)] = 0,
    installation: bool = True,
    timestamps: bool = False,
    org_id: str | None = None,
) -> Response:
    """The output of a replica as it was written, by its number; without one, of a replica that
    runs.

    With ``previous``, or where there is no replica, of the one that ended last: those in ``ended``
    of the service can still be read. With ``follow``, as it comes, until the replica is gone.
    ``Cloudml-Replica`` says which one it is. ``installation=false`` leaves out what was written
    before and after the model server ran. ``timestamps`` puts a time in UTC before each line.
    """
    service, found = await find(here, call, name, version, org_id)
    one = replicas.chosen(service, found, replica, previous=previous)
    headers = {"cloudml-replica": str(replicas.number_of(one))}
    view = LogView(installation, timestamps)
    chunks = here.logs.read(one, Selection(None, attempt, lines, follow, offset, view))
    return streams.text(chunks, headers) if follow else await streams.whole_text(chunks, headers)


@router.get("/{name}/{version}/metrics", responses=answers(ServiceMetrics))
async def metrics(
    here: Here, call: Signed, name: str, version: str, org_id: str | None = None
) -> Response:
    """What each replica uses now and was asked since it started, and what callers got from each
    release.
    """
    service, found = await find(here, call, name, version, org_id)
    figures = here.service_figures().get(service.key.uid)
    return documents.answer(await replicas.metrics_of(service, found.items, here.engine, figures))


@router.get("/{name}/{version}/signatures", responses=answers(ServiceSignatures))
async def signatures(
    here: Here,
    call: Signed,
    name: str,
    version: str,
    *,
    release: str = "",
    org_id: str | None = None,
) -> Response:
    """What the model can be asked: its inputs and outputs, as a replica that answers tells them.

    With ``release=candidate`` those of the release that is tried.
    """
    service, found = await find(here, call, name, version, org_id)
    number = releasing.find_release(service, release).template if release else None
    return documents.answer(await replicas.signatures_of(service, found.items, here.engine, number))


@router.get("/{name}/{version}/lineage", responses=answers(ServiceLineage))
async def lineage(
    here: Here,
    call: Signed,
    name: str,
    version: str,
    *,
    release: str = "",
    org_id: str | None = None,
) -> Response:
    """Where the model came from: its files, and the jobs that exported to where they lie, with code
    and data.

    With ``release=candidate`` that of the release that is tried.
    """

    def look() -> ServiceLineage:
        service = here.services.find(here.identities.scope(call.caller, org_id), name, version)
        return here.lineage.of(service, releasing.find_release(service, release).submitted)

    return documents.answer(await here.offload(look))


async def find(
    here: Platform, call: Call, name: str, version: str, org_id: str | None
) -> tuple[ServiceRecord, Replicas]:
    """A service and its replicas."""

    def look() -> tuple[ServiceRecord, Replicas]:
        record = here.services.find(here.identities.scope(call.caller, org_id), name, version)
        return record, here.services.replicas(record)

    return await here.offload(look)
