"""What is said about a record, as it is said: a stream of events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from starlette.responses import Response

from cloud_ml.api import sse, streams
from cloud_ml.api.platform import Platform
from cloud_ml.domain.jobs.kind import TRAIN_JOB, TrainJobRecord
from cloud_ml.domain.records import Event, Kind, Record
from cloud_ml.domain.services.kind import MODEL_SERVICE, ServiceRecord
from cloud_ml.usecases.jobs import views

_POLL_S = 1.0
"""Sentences outside a transition raise no revision, so nothing wakes who waits for them."""
_END = b"event: end\ndata: {}\n\n"


def of_job(here: Platform, record: TrainJobRecord, after: int) -> Response:
    """What is said about a job behind the event ``after``, until it has ended."""
    return streams.events(_stream_events(here, TRAIN_JOB, record.key.uid, after))


def of_service(here: Platform, record: ServiceRecord, after: int) -> Response:
    """What is said about a service behind the event ``after``, until it is gone."""
    return streams.events(_stream_events(here, MODEL_SERVICE, record.key.uid, after))


def of_record(
    here: Platform, kind: Kind[Any, Any], record: Record[Any, Any], after: int
) -> Response:
    """What is said about a record of any kind behind the event ``after``, until it is gone."""
    return streams.events(_stream_events(here, kind, record.key.uid, after))


async def _stream_events(
    here: Platform, kind: Kind[Any, Any], uid: str, after: int
) -> AsyncGenerator[bytes]:
    def look(after: int) -> tuple[Sequence[Event], bool]:
        # The record before its events: whatever was said of an end that is seen is said by then.
        record = here.store.get(kind, uid)
        return here.store.events(uid, after=after), record is None or _is_over(kind, record)

    now = asyncio.get_running_loop().time
    over, quiet_since = now() + here.settings.stream_limit_s, now()
    yield sse.AGAIN + b"\n"
    with here.hub.watch(uid) as watch:
        while not watch.closed and now() < over:
            found, ended = await here.offload(look, after)
            for event in found:
                yield sse.message("said", event.id, views.event(event))
                after, quiet_since = event.id, now()
            if ended:
                yield _END
                return
            if now() - quiet_since >= here.settings.heartbeat_s:
                yield sse.NOTHING_NEW
                quiet_since = now()
            await watch.wait(min(_POLL_S, here.settings.heartbeat_s))


def _is_over(kind: Kind[Any, Any], record: Record[Any, Any]) -> bool:
    return kind is TRAIN_JOB and bool(record.status.phase.terminal)
