"""The routes of a kind of resource, made from its description: create, list, describe, delete,
events and watches.
"""

from __future__ import annotations

import functools
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from starlette.responses import Response

from cloud_ml.api import (
    auditing,
    conditional,
    documents,
    event_streams,
    long_polls,
    openapi,
    record_streams,
)
from cloud_ml.api.auth import Call, Signed
from cloud_ml.api.conditional import IfNoneMatch
from cloud_ml.api.long_polls import Wait, check_wait
from cloud_ml.api.openapi import answers, body_of, not_modified_responses
from cloud_ml.api.parameters import check_limit
from cloud_ml.api.platform import Platform
from cloud_ml.api.routes import CHECKED, Here
from cloud_ml.api.sse import Start
from cloud_ml.domain.records import Record
from cloud_ml.models import codec, common
from cloud_ml.models.jobs.job import JobEvents
from cloud_ml.models.resource import ResourceChange
from cloud_ml.usecases.feed import RecordChange
from cloud_ml.usecases.resources import Resource, Resources

_Resource = Resource[Any, Any, Any, Any]
_STOP = "stop"
_OF_ANOTHER = "An administrator names another organisation by its number, ``org_id``."


def router_for(resource: _Resource) -> APIRouter:
    """All routes of a kind below ``/api/v1/<plural>``."""
    described = resource.type
    router = APIRouter(
        prefix=described.path,
        tags=[described.plural],
        default_response_class=Response,
        dependencies=CHECKED,
    )
    # Before `/{name}/watch`, which would take `-` for a name: the first route that fits is taken.
    add_stream_of_all(router, resource)
    _add_collection(router, resource)
    _add_single(router, resource)
    for action in described.actions:
        _add_action(router, resource, action)
    add_streams_of_one(router, resource)
    return router


def _of(here: Platform, resource: _Resource) -> Resources[Any, Any, Any, Any]:
    return here.resources_of[resource.type.plural]


def _add_collection(router: APIRouter, resource: _Resource) -> None:
    described = resource.type

    @router.post(
        "",
        status_code=201,
        responses=answers(described.view, 201),
        openapi_extra=body_of(described.new),
    )
    async def create(
        here: Here,
        call: Signed,
        idempotency_key: Annotated[str | None, Header(max_length=255)] = None,
    ) -> Response:
        common.check_idempotency_key(idempotency_key)
        new = codec.decode(described.new, documents.read_object(call.body))
        record = await here.offload(
            _of(here, resource).create,
            call.caller,
            new,
            await here.engine.capacity(),
            idempotency_key=idempotency_key,
            once=call.once,
        )
        return documents.answer(resource.view(record), 201)

    @router.get("", responses=not_modified_responses(described.page))
    async def list_all(
        here: Here,
        call: Signed,
        *,
        limit: Annotated[int, Query(ge=1)] = 50,
        after: Annotated[int | None, Query(ge=0, le=2**62)] = None,
        phase: Annotated[list[str] | None, Query(max_length=20)] = None,
        org_id: str | None = None,
        if_none_match: IfNoneMatch = None,
    ) -> Response:
        check_limit(limit, here.settings.list_page_limit)

        def page() -> Response:
            revision = (
                here.store.revision()
            )  # before the list: whoever watches from here on misses nothing
            scope = here.identities.scope(call.caller, org_id)
            items, following = _of(here, resource).list(
                scope, phases=phase, after=after, limit=limit
            )
            shown = described.page(items=list(items), next=following, revision=revision)
            return conditional.answer_by_content(shown, if_none_match, revision=revision)

        return await here.offload(page)

    auditing.name_operation(create, f"{described.plural}.create")
    create.__doc__ = f"Create a {described.name}. The same ``Idempotency-Key`` makes one and always answers with it."
    list_all.__doc__ = (
        f"{described.plural.capitalize()}, newest first; with ``phase`` only those in one of these."
    )


def _add_single(router: APIRouter, resource: _Resource) -> None:
    described = resource.type

    @router.get("/{name}", responses=not_modified_responses(described.view))
    async def describe(
        here: Here,
        call: Signed,
        name: str,
        *,
        wait: Wait = 0,
        revision: int | None = None,
        org_id: str | None = None,
        if_none_match: IfNoneMatch = None,
    ) -> Response:
        check_wait(here, wait)

        def find() -> Record[Any, Any]:
            return _of(here, resource).find(here.identities.scope(call.caller, org_id), name)

        record = await here.offload(find)
        if wait:
            known_revision = record.revision if revision is None else revision
            record = await here.hub.newer(record.key.uid, known_revision, find, timeout_s=wait)
        return conditional.answer(resource.view(record), if_none_match, tag=f"{record.revision}")

    @router.delete("/{name}", status_code=202, responses=answers(described.view, 202))
    async def delete(here: Here, call: Signed, name: str, org_id: str | None = None) -> Response:
        def remove() -> Record[Any, Any]:
            scope = here.identities.scope(call.caller, org_id)
            return _of(here, resource).delete(scope, name, call.caller, once=call.once)

        return documents.answer(resource.view(await here.offload(remove)), 202)

    @router.get("/{name}/events", responses=answers(JobEvents))
    async def events(
        here: Here,
        call: Signed,
        name: str,
        *,
        after: Annotated[int, Query(ge=0, lt=2**62)] = 0,
        wait: Wait = 0,
        org_id: str | None = None,
    ) -> Response:
        check_wait(here, wait)
        record = await here.offload(_find, here, call, resource, name, org_id)
        uid = record.key.uid
        return documents.answer(
            await long_polls.events(here, uid, lambda: here.store.events(uid, after=after), wait)
        )

    auditing.name_operation(delete, f"{described.plural}.delete")
    one = described.name
    describe.__doc__ = (
        f"A {one} by name or uid. With ``wait``, the answer comes as soon as its revision is above "
        "``revision`` (or above the present one), at the latest after so many seconds."
    )
    delete.__doc__ = f"Ask for the removal of a {one}. {_OF_ANOTHER}"
    events.__doc__ = (
        f"What was said about a {one}, oldest first, those with ``id > after``. With ``wait``, the "
        "answer comes as soon as there is one, at the latest after so many seconds."
    )


def _add_action(router: APIRouter, resource: _Resource, action: str) -> None:
    if action == _STOP:
        _add_stop(router, resource)
        return
    described = resource.type
    taken = described.bodies.get(action)

    @router.post(
        f"/{{name}}/{action}",
        responses=answers(described.view),
        openapi_extra=None if taken is None else body_of(taken),
    )
    async def act(here: Here, call: Signed, name: str) -> Response:
        body = None if taken is None else codec.decode(taken, documents.read_object(call.body))
        record = await here.offload(
            _of(here, resource).act, call.org, name, action, call.caller, body, once=call.once
        )
        return documents.answer(resource.view(record))

    auditing.name_operation(act, f"{described.plural}.{action}")
    act.__doc__ = described.actions[action]


def _add_stop(router: APIRouter, resource: _Resource) -> None:
    """The one action that an administrator has for resources of other organisations."""

    @router.post(f"/{{name}}/{_STOP}", responses=answers(resource.type.view))
    async def act(here: Here, call: Signed, name: str, org_id: str | None = None) -> Response:
        def stop() -> Record[Any, Any]:
            scope = here.identities.scope(call.caller, org_id)
            return _of(here, resource).act(scope, name, _STOP, call.caller, once=call.once)

        return documents.answer(resource.view(await here.offload(stop)))

    auditing.name_operation(act, f"{resource.type.plural}.{_STOP}")
    act.__doc__ = f"{resource.type.actions[_STOP]}\n\n{_OF_ANOTHER}"


def add_stream_of_all(router: APIRouter, resource: _Resource) -> None:
    """``/-/watch``: changes of all records of the kind."""
    change = functools.partial(_change, resource)

    @router.get("/-/watch", responses=openapi.events())
    async def watch_all(
        here: Here,
        call: Signed,
        start: Start,
        org_id: str | None = None,
    ) -> Response:
        return await record_streams.of_all(
            here, call, resource.kind, change, start=start, org_id=org_id
        )

    watch_all.__doc__ = (
        f"Changes of all {resource.type.plural}, as server-sent events. Each is a "
        "``ResourceChange`` under the id of its revision. The stream begins behind "
        "``Last-Event-ID``, else behind ``after``, else now. Revisions of before a restore of the "
        "database are refused (410): list again, and watch from there."
    )


def add_streams_of_one(router: APIRouter, resource: _Resource) -> None:
    """``/{name}/watch`` and ``/{name}/events/watch``: one record's changes, and what is said
    about it.
    """
    change = functools.partial(_change, resource)

    @router.get("/{name}/watch", responses=openapi.events())
    async def watch(
        here: Here,
        call: Signed,
        name: str,
        *,
        start: Start,
        org_id: str | None = None,
    ) -> Response:
        def find() -> Record[Any, Any]:
            return _find(here, call, resource, name, org_id)

        return await record_streams.of_one(here, find, resource.kind, change, start=start)

    @router.get("/{name}/events/watch", responses=openapi.events())
    async def watch_events(
        here: Here,
        call: Signed,
        name: str,
        *,
        start: Start,
        org_id: str | None = None,
    ) -> Response:
        record = await here.offload(_find, here, call, resource, name, org_id)
        return event_streams.of_record(here, resource.kind, record, start or 0)

    one = resource.type.name
    watch.__doc__ = f"How a {one} stands, and then each change of it, as server-sent events; ends when it is gone."
    watch_events.__doc__ = f"What is said about a {one}, as server-sent events, until it is gone."


def _find(
    here: Platform, call: Call, resource: _Resource, name: str, org_id: str | None
) -> Record[Any, Any]:
    return _of(here, resource).find(here.identities.scope(call.caller, org_id), name)


async def _change(resource: _Resource, one: RecordChange[Any, Any]) -> ResourceChange:
    view = None if one.record is None else resource.view(one.record)
    return ResourceChange(
        revision=one.revision, uid=one.uid, name=one.name, org=one.org, resource=view
    )
