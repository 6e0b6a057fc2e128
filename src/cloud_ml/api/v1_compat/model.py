"""``/cloud_ml/v1/model``."""

from __future__ import annotations

import dataclasses
from typing import Any
from urllib.parse import parse_qsl

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from cloud_ml.api import documents, streams
from cloud_ml.api.auth import Signed, SignedMutation
from cloud_ml.api.platform import Platform
from cloud_ml.api.routes import Here
from cloud_ml.api.routes.replicas import find
from cloud_ml.domain.services.kind import ServiceRecord
from cloud_ml.domain.services.scale import replicas_of
from cloud_ml.domain.workloads.spec import Desired
from cloud_ml.models import codec, common
from cloud_ml.models.services.model_service import ModelService
from cloud_ml.models.services.service import ServiceUpdate
from cloud_ml.usecases.jobs import views
from cloud_ml.usecases.jobs.logs import Selection
from cloud_ml.usecases.models import replicas
from cloud_ml.usecases.models import views as service_views

router = APIRouter(prefix="/model", default_response_class=Response)

_NEWEST = 1000
_MOST_NOTES = 20
_MOST_FIELDS = 100
_KNOWN = frozenset(field.name for field in dataclasses.fields(ModelService))
_CHANGEABLE = frozenset(field.name for field in dataclasses.fields(ServiceUpdate))
_ABOUT_WHOM = ("model_name", "model_version", "org_id")


@router.post("")
async def create(here: Here, call: Signed) -> Response:
    """Take a service. Fields that we do not know are ignored, and its events say so.

    Its client sends no credentials when it predicts. Whether such a service is open to whoever
    reaches its port says the setting ``gateway.original_clients``.
    """
    document = documents.read_object(call.body)
    service = codec.decode(ModelService, document, ignore_unknown=True)
    if "access" not in document and here.original_services_open:
        service = dataclasses.replace(service, access="open")
    capacity = await here.engine.capacity()

    def take() -> dict[str, Any]:
        record = here.services.create(
            call.caller,
            service,
            capacity=capacity,
            notes=_describe_ignored(document),
            once=call.once,
        )
        return service_views.model_document(record, call.caller.organisation, here.services_host)

    return documents.answer(await here.offload(take))


@router.get("")
async def list_models(here: Here, call: Signed, org_id: str | None = None) -> Response:
    """The newest services."""

    def rows() -> list[dict[str, Any]]:
        page = here.services.list(here.identities.scope(call.caller, org_id), limit=_NEWEST)
        statuses = here.services.statuses(page.items)
        return [
            service_views.model_row(
                line,
                here.identities.organisation(line.key.org),
                here.services_host,
                status.port if (status := statuses.get(line.key.uid)) else 0,
            )
            for line in page.items
        ]

    return documents.answer({"data": await here.offload(rows)})


@router.get("/{name}/{version}")
async def describe(
    here: Here, call: Signed, name: str, version: str, org_id: str | None = None
) -> Response:
    """One service."""

    def look() -> dict[str, Any]:
        return _document(
            here, here.services.find(here.identities.scope(call.caller, org_id), name, version)
        )

    return documents.answer(await here.offload(look))


@router.put("/{name}/{version}")
async def update(
    here: Here, call: Signed, name: str, version: str, org_id: str | None = None
) -> Response:
    """Change fields: as a form, in which every value is text, or as JSON."""
    change, capacity = _change(call.body), await here.engine.capacity()

    def put() -> dict[str, Any]:
        scope = here.identities.scope(call.caller, org_id)
        record = here.services.update(
            scope, (name, version), call.caller, change, capacity=capacity, once=call.once
        )
        return _document(here, record)

    return documents.answer(await here.offload(put))


@router.get("/{name}/{version}/start")
async def start(here: Here, call: SignedMutation, name: str, version: str) -> Response:
    """Start a service that was saved or stopped: a GET that changes something."""

    def begin() -> dict[str, Any]:
        record = here.services.want(
            call.org, (name, version), call.caller, Desired.RUN, once=call.once
        )
        return _document(here, record)

    return documents.answer(await here.offload(begin))


@router.delete("/{name}/{version}")
async def delete(
    here: Here, call: Signed, name: str, version: str, org_id: str | None = None
) -> Response:
    """Ask for a service's removal."""

    def remove() -> dict[str, Any]:
        scope = here.identities.scope(call.caller, org_id)
        here.services.delete(scope, (name, version), call.caller, once=call.once)
        message = f"{name} {version} is being deleted"
        return {
            "model_name": name,
            "model_version": version,
            "state": "deleting",
            "message": message,
        }

    return documents.answer(await here.offload(remove))


@router.get("/{name}/{version}/logs")
async def logs(
    here: Here,
    call: Signed,
    request: Request,
    name: str,
    version: str,
    *,
    org_id: str | None = None,
) -> Response:
    """``{"logs": text}`` of a replica: of one that runs (or ended last), or of the one at a
    place, counted from 0.
    """
    service, found = await find(here, call, name, version, org_id)
    if request.query_params.get("proxy"):
        return documents.answer(
            {
                "logs": "There is no proxy beside a replica: one gateway stands before all "
                "services.\n"
            }
        )
    number: int | None = None
    if (place := request.query_params.get("replica")) is not None:
        most = max(len(found.default), replicas_of(service.spec, service.status), 1) - 1
        index = common.check_count("replica", place, least=0, most=most)
        if index >= len(found.default):  # it is wanted, and made in a moment
            return documents.answer({"logs": ""})
        number = replicas.number_of(found.default[index])
    elif not found.default:
        return documents.answer({"logs": ""})
    chunks = here.logs.read(replicas.chosen(service, found, number), Selection())
    return streams.text_in_json("logs", chunks)


@router.get("/{name}/{version}/events")
async def events(
    here: Here, call: Signed, name: str, version: str, org_id: str | None = None
) -> Response:
    """Events of a service."""

    def read_events() -> dict[str, Any]:
        record = here.services.find(here.identities.scope(call.caller, org_id), name, version)
        return views.events_document(name, here.services.events(record))

    return documents.answer(await here.offload(read_events))


@router.get("/{name}/{version}/metrics")
async def metrics(
    here: Here, call: Signed, name: str, version: str, org_id: str | None = None
) -> Response:
    """What the replicas of a service use now, together: percent of one core, bytes."""
    service, found = await find(here, call, name, version, org_id)
    return documents.answer(
        service_views.model_metrics(await replicas.metrics_of(service, found.items, here.engine))
    )


def _change(body: bytes) -> ServiceUpdate:
    text = body.lstrip()
    if text.startswith(b"{"):
        document = documents.read_object(body)
    else:
        try:
            pairs = parse_qsl(
                body.decode("ascii"),
                keep_blank_values=True,
                max_num_fields=_MOST_FIELDS,
                errors="strict",
            )
        except ValueError as error:
            raise common.refuse(
                "body", body[:80].decode("latin-1"), "a form or a JSON object"
            ) from error
        document = dict(pairs)
    given = {
        name: value
        for name, value in document.items()
        if value not in (None, "") and name not in _ABOUT_WHOM
    }
    if unknown := next((name for name in given if name not in _CHANGEABLE), None):
        raise common.refuse(unknown[:80], given[unknown], "left out: this server does not offer it")
    return codec.decode(ServiceUpdate, given)


def _describe_ignored(document: dict[str, Any]) -> list[str]:
    """Sentences about the fields that we do not know."""
    names = [name for name in document if name not in _KNOWN]
    notes = [
        f"the field {name[:80]!r} is not known to this server and was ignored"
        for name in names[:_MOST_NOTES]
    ]
    if len(names) > _MOST_NOTES:
        notes.append(f"{len(names) - _MOST_NOTES} more unknown fields were ignored")
    return notes


def _document(here: Platform, record: ServiceRecord) -> dict[str, Any]:
    organisation = here.identities.organisation(record.key.org)
    return service_views.model_document(record, organisation, here.services_host)
