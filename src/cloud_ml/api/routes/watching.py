"""Server-sent events: each change of a job, as it happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from fastapi import APIRouter
from starlette.responses import Response

from cloud_ml.api import sse, streams, telling
from cloud_ml.api.auth import Signed
from cloud_ml.api.openapi import events
from cloud_ml.api.routes import CHECKED, Here
from cloud_ml.api.sse import After, LastEventId
from cloud_ml.domain.jobs.kind import TRAIN_JOB, TrainJobRecord
from cloud_ml.domain.jobs.spec import JobSpec
from cloud_ml.domain.workloads.phases import JobStatus
from cloud_ml.models.job import JobChange
from cloud_ml.state.epochs import epoch_of
from cloud_ml.usecases import views
from cloud_ml.usecases.feed import Sighting, check_epoch

router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"], default_response_class=Response, dependencies=CHECKED)


@router.get("/-/watch", responses=events())
async def watch_jobs(
    here: Here, call: Signed, last_event_id: LastEventId = None, after: int | None = None, org_id: str | None = None
) -> Response:
    """Changes of all jobs, as server-sent events.

    Each event is a ``JobChange`` under the id of its revision. The stream begins behind ``Last-Event-ID``, else
    behind ``after`` (the ``revision`` of a list), else now. After a restore of the database, revisions of before are
    refused (410): list anew. It ends after an hour and when the server stops: ask
    again from the last id. Who is slow is told the newest state of what changed, not each step.
    """
    scope = await here.offload(here.identities.scope, call.caller, org_id)
    start = sse.place(last_event_id, after)
    newest = await here.offload(here.store.revision)
    if start is None:
        start = newest
    check_epoch(start, newest)
    seen = here.feed_of(TRAIN_JOB).watch(scope, after=start, heartbeat_s=here.settings.heartbeat_s)
    return streams.events(_messages(seen, start, here.settings.stream_limit_s))


@router.get("/{name}/watch", responses=events())
async def watch_job(
    here: Here,
    call: Signed,
    name: str,
    *,
    last_event_id: LastEventId = None,
    after: After = None,
    org_id: str | None = None,
) -> Response:
    """How a job stands, and then each change of it, as server-sent events; ends when it is gone."""

    def find() -> tuple[int, TrainJobRecord]:
        newest = here.store.revision()  # before the job: whatever happens to it later is told
        return newest, here.jobs.find(here.identities.scope(call.caller, org_id), name)

    newest, job = await here.offload(find)
    at = job.revision if epoch_of(job.revision) == epoch_of(newest) else newest
    start = sse.place(last_event_id, after)
    if start is not None:
        check_epoch(start, max(newest, job.revision), known=job.revision)
    seen = here.feed_of(TRAIN_JOB).watch(
        job.key.org, uid=job.key.uid, after=at if start is None else start, heartbeat_s=here.settings.heartbeat_s
    )
    first = Sighting(at, job.key.uid, job.key.org, job.key.name, job) if start is None else None
    messages = _messages(seen, start or 0, here.settings.stream_limit_s, first=first, to_the_end=True)
    return streams.events(messages)


@router.get("/{name}/events/watch", responses=events())
async def watch_events(
    here: Here,
    call: Signed,
    name: str,
    *,
    last_event_id: LastEventId = None,
    after: After = None,
    org_id: str | None = None,
) -> Response:
    """What is said about a job, as server-sent events, until it has ended.

    Each is a ``JobEvent`` under its id; the stream begins behind ``Last-Event-ID``, else behind ``after``, else with
    the first. One of the kind ``end`` says that there will be no more; without it, ask again from the last id.
    """

    def find() -> TrainJobRecord:
        return here.jobs.find(here.identities.scope(call.caller, org_id), name)

    return telling.of_job(here, await here.offload(find), sse.place(last_event_id, after) or 0)


async def _messages(
    seen: AsyncGenerator[Sighting[JobSpec, JobStatus] | None],
    start: int,
    limit_s: float,
    *,
    first: Sighting[JobSpec, JobStatus] | None = None,
    to_the_end: bool = False,
) -> AsyncGenerator[bytes]:
    """Events as they stand on the wire."""
    loop = asyncio.get_running_loop()
    over = loop.time() + limit_s
    yield sse.AGAIN + (b"\n" if first else f"id: {start}\nevent: ready\ndata: {{}}\n\n".encode())
    if first is not None:
        yield _message(first)
    async with aclosing(seen):
        async for one in seen:
            yield sse.NOTHING_NEW if one is None else _message(one)
            if loop.time() > over or (to_the_end and one is not None and one.record is None):
                return


def _message(one: Sighting[JobSpec, JobStatus]) -> bytes:
    change = JobChange(
        revision=one.revision,
        uid=one.uid,
        name=one.name,
        org=one.org,
        job=None if one.record is None else views.job(one.record),
    )
    return sse.message("gone" if one.record is None else "job", one.revision, change)
