"""``/api/v1/models``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.responses import Response

from cloud_ml.api import conditional, documents, event_streams, long_polls, openapi
from cloud_ml.api.auth import Call, Signed
from cloud_ml.api.conditional import IfNoneMatch
from cloud_ml.api.long_polls import Wait, check_wait
from cloud_ml.api.openapi import answers, body_of, not_modified_responses
from cloud_ml.api.parameters import check_limit
from cloud_ml.api.platform import Platform
from cloud_ml.api.routes import CHECKED, Here
from cloud_ml.api.sse import Start
from cloud_ml.domain.services.kind import ServiceRecord
from cloud_ml.domain.workloads.spec import Desired
from cloud_ml.models import codec, common
from cloud_ml.models.jobs.job import JobEvents
from cloud_ml.models.services.model_service import ModelService
from cloud_ml.models.services.service import Service, ServicePage, ServiceUpdate
from cloud_ml.usecases.models import views as service_views
from cloud_ml.usecases.models.replicas import Replicas

router = APIRouter(
    prefix="/api/v1/models", tags=["models"], default_response_class=Response, dependencies=CHECKED
)


@router.post(
    "", status_code=201, responses=answers(Service, 201), openapi_extra=body_of(ModelService)
)
async def create(
    here: Here, call: Signed, idempotency_key: Annotated[str | None, Header(max_length=255)] = None
) -> Response:
    """Take a service. The same ``Idempotency-Key`` makes one service and always answers with it."""
    common.check_idempotency_key(idempotency_key)
    service = codec.decode(ModelService, documents.read_object(call.body))
    record = await here.offload(
        here.services.create,
        call.caller,
        service,
        capacity=await here.engine.capacity(),
        idempotency_key=idempotency_key,
        once=call.once,
    )
    return documents.answer(_to_wire(here, record), 201)


@router.get("", responses=not_modified_responses(ServicePage))
async def list_services(
    here: Here,
    call: Signed,
    *,
    limit: Annotated[int, Query(ge=1)] = 50,
    after: Annotated[int | None, Query(ge=0, le=2**62)] = None,
    name: Annotated[str | None, Query(max_length=63)] = None,
    org_id: str | None = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Newest first; ``name`` is that of a model, of which all versions are given."""
    check_limit(limit, here.settings.list_page_limit)

    def page() -> Response:
        revision = (
            here.store.revision()
        )  # before the list: whoever watches from here on misses nothing
        scope = here.identities.scope(call.caller, org_id)
        found = here.services.list(scope, model_name=name, after=after, limit=limit)
        statuses = here.services.statuses(found.items)
        items = [
            service_views.summary(line, here.services_host, statuses.get(line.key.uid))
            for line in found.items
        ]
        shown = ServicePage(items=items, next=found.next, revision=revision)
        return conditional.answer_by_content(shown, if_none_match, revision=revision)

    return await here.offload(page)


@router.get("/{name}/{version}", responses=not_modified_responses(Service))
async def describe(
    here: Here,
    call: Signed,
    name: str,
    version: str,
    *,
    wait: Wait = 0,
    revision: int | None = None,
    org_id: str | None = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """A service by name and version, with its replicas.

    With ``wait``, the answer comes as soon as the service's revision is above ``revision`` (or
    above the present one), at the latest after so many seconds.
    """
    check_wait(here, wait)

    def find() -> ServiceRecord:
        return here.services.find(here.identities.scope(call.caller, org_id), name, version)

    record = await here.offload(find)
    if wait:
        known = record.revision if revision is None else revision
        record = await here.hub.newer(record.key.uid, known, find, timeout_s=wait)
    return conditional.answer_by_content(
        await here.offload(_with_notices, here, record), if_none_match
    )


@router.patch("/{name}/{version}", responses=answers(Service), openapi_extra=body_of(ServiceUpdate))
async def update(here: Here, call: Signed, name: str, version: str) -> Response:
    """Change fields. What makes replicas differ is rolled out one replica after the other; nothing
    is interrupted.

    With ``canary``, a percentage, it is tried on so many calls beside what is served.
    """
    change = codec.decode(ServiceUpdate, documents.read_object(call.body))
    record = await here.offload(
        here.services.update,
        call.org,
        (name, version),
        call.caller,
        change,
        capacity=await here.engine.capacity(),
        once=call.once,
    )
    return await _with_replicas(here, record)


@router.post("/{name}/{version}/promote", responses=answers(Service))
async def promote(
    here: Here,
    call: Signed,
    name: str,
    version: str,
    release: Annotated[int | None, Query(ge=1, lt=2**31)] = None,
) -> Response:
    """Serve the candidate from now on, rolled out one replica after the other.

    With ``release``, its number, no other one is promoted, and what has been is success.
    """
    record = await here.offload(
        here.releasing.promote,
        call.org,
        (name, version),
        call.caller,
        release=release,
        once=call.once,
    )
    return await _with_replicas(here, record)


@router.post("/{name}/{version}/rollback", responses=answers(Service))
async def rollback(
    here: Here,
    call: Signed,
    name: str,
    version: str,
    *,
    release: Annotated[int | None, Query(ge=1, lt=2**31)] = None,
    to: Annotated[int | None, Query(ge=1, lt=2**31)] = None,
) -> Response:
    """Drop the candidate; where there is none, serve what was served before.

    With ``release``, the number of the one that is to go, no other one goes, and what has gone is
    success. With ``to``, the release of that number is served; later ones are discarded.
    """
    if release is not None and to is not None:
        raise common.refuse("release", release, "nothing beside to")
    record = await here.offload(
        here.releasing.rollback,
        call.org,
        (name, version),
        call.caller,
        release=release,
        to=to,
        once=call.once,
    )
    return await _with_replicas(here, record)


@router.post("/{name}/{version}/start", responses=answers(Service))
async def start(here: Here, call: Signed, name: str, version: str) -> Response:
    """Start a saved or stopped service."""
    return await _want(here, call, (name, version), Desired.RUN, None)


@router.post("/{name}/{version}/stop", responses=answers(Service))
async def stop(
    here: Here,
    call: Signed,
    name: str,
    version: str,
    *,
    grace: Annotated[str | None, Query(max_length=32)] = None,
    org_id: str | None = None,
) -> Response:
    """End every replica; the service stays and can be started again.

    ``grace`` is the time between SIGTERM and SIGKILL, such as ``30s`` or ``0``; left out, the
    server's setting.

    An administrator names another organisation by its number, ``org_id``.
    """
    return await _want(here, call, (name, version), Desired.STOPPED, org_id, grace=grace)


@router.delete("/{name}/{version}", status_code=202, responses=answers(Service, 202))
async def delete(
    here: Here, call: Signed, name: str, version: str, org_id: str | None = None
) -> Response:
    """Ask for removal: replicas end, and then name and version are free.

    An administrator names another organisation by its number, ``org_id``.
    """

    def delete_service() -> ServiceRecord:
        scope = here.identities.scope(call.caller, org_id)
        return here.services.delete(scope, (name, version), call.caller, once=call.once)

    return documents.answer(_to_wire(here, await here.offload(delete_service)), 202)


@router.get("/{name}/{version}/events", responses=answers(JobEvents))
async def events(
    here: Here,
    call: Signed,
    name: str,
    version: str,
    *,
    after: Annotated[int, Query(ge=0, lt=2**62)] = 0,
    wait: Wait = 0,
    org_id: str | None = None,
) -> Response:
    """What was said about a service, oldest first, those with ``id > after``.

    With ``wait``, the answer comes as soon as there is one, at the latest after so many seconds.
    """
    check_wait(here, wait)

    def find() -> ServiceRecord:
        return here.services.find(here.identities.scope(call.caller, org_id), name, version)

    record = await here.offload(find)
    found = await long_polls.events(
        here, record.key.uid, lambda: here.services.events(record, after=after), wait
    )
    return documents.answer(found)


@router.get("/{name}/{version}/events/watch", responses=openapi.events())
async def watch_events(
    here: Here,
    call: Signed,
    name: str,
    version: str,
    *,
    start: Start,
    org_id: str | None = None,
) -> Response:
    """What is said about a service, as server-sent events, until it is gone.

    Each is a ``JobEvent`` under its id; the stream begins behind ``Last-Event-ID``, else behind
    ``after``, else with the first. One of the kind ``end`` says that there will be no more; without
    it, ask again from the last id.
    """

    def find() -> ServiceRecord:
        return here.services.find(here.identities.scope(call.caller, org_id), name, version)

    return event_streams.of_service(here, await here.offload(find), start or 0)


async def _want(
    here: Here,
    call: Call,
    name: tuple[str, str],
    desired: Desired,
    org_id: str | None,
    *,
    grace: str | None = None,
) -> Response:
    def change() -> ServiceRecord:
        scope = here.identities.scope(call.caller, org_id)
        return here.services.want(scope, name, call.caller, desired, grace=grace, once=call.once)

    return documents.answer(_to_wire(here, await here.offload(change)))


async def _with_replicas(here: Platform, record: ServiceRecord) -> Response:
    """The answer to a change: with the replicas, by which a client sees that it is not rolled
    out yet.
    """
    return documents.answer(await here.offload(_with_notices, here, record))


def _with_notices(here: Platform, record: ServiceRecord) -> Service:
    """A service with all that there is to say of it. Blocking."""
    replicas, notices = here.services.replicas(record), here.services.notices(record)
    return _to_wire(here, record, replicas, notices)


def _to_wire(
    here: Platform,
    record: ServiceRecord,
    replicas: Replicas | None = None,
    notices: Sequence[str] = (),
) -> Service:
    return service_views.service(
        record, replicas, here.services_host, tls=here.services_tls, notices=notices
    )
