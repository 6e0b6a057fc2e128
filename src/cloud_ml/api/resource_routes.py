"""The routes of a kind of resource, made from its description: create, list, describe, delete, events and watches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from starlette.responses import Response

from cloud_ml.api import documents, openapi, sse, streams, telling, waiting
from cloud_ml.api.auth import Call, Signed
from cloud_ml.api.openapi import answers, body_of
from cloud_ml.api.parameters import check_limit
from cloud_ml.api.platform import Platform
from cloud_ml.api.routes import CHECKED, Here
from cloud_ml.api.sse import After, LastEventId
from cloud_ml.api.waiting import Wait, check_wait
from cloud_ml.domain.records import Record
from cloud_ml.models import codec, common
from cloud_ml.models.job import JobEvents
from cloud_ml.models.resource import ResourceChange
from cloud_ml.state.epochs import epoch_of
from cloud_ml.usecases.feed import Sighting, check_epoch
from cloud_ml.usecases.resources import Resource, Resources

_Resource = Resource[Any, Any, Any, Any]


def router_for(resource: _Resource) -> APIRouter:
    """All routes of a kind below ``/api/v1/<plural>``."""
    described = resource.type
    router = APIRouter(
        prefix=described.path, tags=[described.plural], default_response_class=Response, dependencies=CHECKED
    )
    add_stream_of_all(router, resource)
    _add_collection(router, resource)
    _add_single(router, resource)
    add_streams_of_one(router, resource)
    return router


def _of(here: Platform, resource: _Resource) -> Resources[Any, Any, Any, Any]:
    return here.resources_of[resource.type.plural]


def _add_collection(router: APIRouter, resource: _Resource) -> None:
    described = resource.type

    @router.post("", status_code=201, responses=answers(described.view, 201), openapi_extra=body_of(described.new))
    async def create(
        here: Here, call: Signed, idempotency_key: Annotated[str | None, Header(max_length=255)] = None
    ) -> Response:
        common.check_idempotency_key(idempotency_key)
        new = codec.decode(described.new, documents.read_object(call.body))
        record = await here.offload(
            _of(here, resource).create, call.caller, new, idempotency_key=idempotency_key, once=call.once
        )
        return documents.answer(resource.view(record), 201)

    @router.get("", responses=answers(described.page))
    async def list_all(
        here: Here,
        call: Signed,
        *,
        limit: Annotated[int, Query(ge=1)] = 50,
        after: Annotated[int | None, Query(ge=0, le=2**62)] = None,
        phase: Annotated[list[str] | None, Query(max_length=20)] = None,
        org_id: str | None = None,
    ) -> Response:
        check_limit(limit, here.settings.list_page_limit)

        def page() -> Any:
            scope = here.identities.scope(call.caller, org_id)
            items, following = _of(here, resource).list(scope, phases=phase, after=after, limit=limit)
            return described.page(items=list(items), next=following)

        return documents.answer(await here.offload(page))

    create.__doc__ = f"Create a {described.name}. The same ``Idempotency-Key`` makes one and always answers with it."
    list_all.__doc__ = f"{described.plural.capitalize()}, newest first; with ``phase`` only those in one of these."


def _add_single(router: APIRouter, resource: _Resource) -> None:
    described = resource.type

    @router.get("/{name}", responses=answers(described.view))
    async def describe(
        here: Here,
        call: Signed,
        name: str,
        *,
        wait: Wait = 0,
        revision: int | None = None,
        org_id: str | None = None,
    ) -> Response:
        check_wait(here, wait)

        def find() -> Record[Any, Any]:
            return _of(here, resource).find(here.identities.scope(call.caller, org_id), name)

        record = await here.offload(find)
        if wait:
            known = record.revision if revision is None else revision
            record = await here.hub.newer(record.key.uid, known, find, timeout_s=wait)
        return documents.answer(resource.view(record))

    @router.delete("/{name}", status_code=202, responses=answers(described.view, 202))
    async def delete(here: Here, call: Signed, name: str) -> Response:
        record = await here.offload(_of(here, resource).delete, call.org, name, call.caller, once=call.once)
        return documents.answer(resource.view(record), 202)

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
        return documents.answer(await waiting.events(here, uid, lambda: here.store.events(uid, after=after), wait))

    one = described.name
    describe.__doc__ = (
        f"A {one} by name or uid. With ``wait``, the answer comes as soon as its revision is above ``revision`` (or "
        "above the present one), at the latest after so many seconds."
    )
    delete.__doc__ = f"Ask for the removal of a {one}."
    events.__doc__ = (
        f"What was said about a {one}, oldest first, those with ``id > after``. With ``wait``, the answer comes as "
        "soon as there is one, at the latest after so many seconds."
    )


def add_stream_of_all(router: APIRouter, resource: _Resource) -> None:
    """``/-/watch``: changes of all records of the kind."""

    @router.get("/-/watch", responses=openapi.events())
    async def watch_all(
        here: Here, call: Signed, last_event_id: LastEventId = None, after: After = None, org_id: str | None = None
    ) -> Response:
        scope = await here.offload(here.identities.scope, call.caller, org_id)
        newest = await here.offload(here.store.revision)
        start = sse.place(last_event_id, after)
        if start is None:
            start = newest
        check_epoch(start, newest)
        seen = here.feed_of(resource.kind).watch(scope, after=start, heartbeat_s=here.settings.heartbeat_s)
        return streams.events(_changes(resource, seen, start, here.settings.stream_limit_s))

    watch_all.__doc__ = (
        f"Changes of all {resource.type.plural}, as server-sent events. Each is a ``ResourceChange`` under the id of "
        "its revision. The stream begins behind ``Last-Event-ID``, else behind ``after``, else now. Revisions of "
        "before a restore of the database are refused (410): list again, and watch from there."
    )


def add_streams_of_one(router: APIRouter, resource: _Resource) -> None:
    """``/{name}/watch`` and ``/{name}/events/watch``: one record's changes, and what is said about it."""

    @router.get("/{name}/watch", responses=openapi.events())
    async def watch(
        here: Here,
        call: Signed,
        name: str,
        *,
        last_event_id: LastEventId = None,
        after: After = None,
        org_id: str | None = None,
    ) -> Response:
        def find() -> tuple[int, Record[Any, Any]]:
            newest = here.store.revision()  # before the record: whatever happens to it later is told
            return newest, _find(here, call, resource, name, org_id)

        newest, record = await here.offload(find)
        at = record.revision if epoch_of(record.revision) == epoch_of(newest) else newest
        start, key = sse.place(last_event_id, after), record.key
        if start is not None:
            check_epoch(start, max(newest, record.revision), known=record.revision)
        seen = here.feed_of(resource.kind).watch(
            key.org, uid=key.uid, after=at if start is None else start, heartbeat_s=here.settings.heartbeat_s
        )
        first = Sighting(at, key.uid, key.org, key.name, record) if start is None else None
        return streams.events(
            _changes(resource, seen, start or 0, here.settings.stream_limit_s, first=first, to_the_end=True)
        )

    @router.get("/{name}/events/watch", responses=openapi.events())
    async def watch_events(
        here: Here,
        call: Signed,
        name: str,
        *,
        last_event_id: LastEventId = None,
        after: After = None,
        org_id: str | None = None,
    ) -> Response:
        record = await here.offload(_find, here, call, resource, name, org_id)
        return telling.of_record(here, resource.kind, record, sse.place(last_event_id, after) or 0)

    one = resource.type.name
    watch.__doc__ = f"How a {one} stands, and then each change of it, as server-sent events; ends when it is gone."
    watch_events.__doc__ = f"What is said about a {one}, as server-sent events, until it is gone."


def _find(here: Platform, call: Call, resource: _Resource, name: str, org_id: str | None) -> Record[Any, Any]:
    return _of(here, resource).find(here.identities.scope(call.caller, org_id), name)


async def _changes(
    resource: _Resource,
    seen: AsyncGenerator[Sighting[Any, Any] | None],
    start: int,
    limit_s: float,
    *,
    first: Sighting[Any, Any] | None = None,
    to_the_end: bool = False,
) -> AsyncGenerator[bytes]:
    """Changes as they stand on the wire."""
    loop = asyncio.get_running_loop()
    over = loop.time() + limit_s
    yield sse.AGAIN + (b"\n" if first else f"id: {start}\nevent: ready\ndata: {{}}\n\n".encode())
    if first is not None:
        yield _message(resource, first)
    async with aclosing(seen):
        async for one in seen:
            yield sse.NOTHING_NEW if one is None else _message(resource, one)
            if loop.time() > over or (to_the_end and one is not None and one.record is None):
                return


def _message(resource: _Resource, one: Sighting[Any, Any]) -> bytes:
    change = ResourceChange(
        revision=one.revision,
        uid=one.uid,
        name=one.name,
        org=one.org,
        resource=None if one.record is None else resource.view(one.record),
    )
    return sse.message("gone" if one.record is None else "changed", one.revision, change)
