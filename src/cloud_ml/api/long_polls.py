"""Requests that are answered when there is something new, at the latest after so many seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated

from fastapi import Query

from cloud_ml.api.platform import Platform
from cloud_ml.domain.jobs.kind import TrainJobRecord
from cloud_ml.domain.records import Event
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.models import common
from cloud_ml.models.jobs.job import JobEvents
from cloud_ml.usecases.jobs import views

Wait = Annotated[float, Query(ge=0, allow_inf_nan=False)]
_EVENT_POLL_S = 1.0
"""Sentences outside a transition raise no revision, so nothing wakes who waits for them."""
_BEGIN_S = 2.0
"""So long after the first line of its code at most, a job is known to run: about 0.1 s."""


def check_wait(here: Platform, wait: float) -> None:
    """Refuse to wait longer than the setting allows.

    Raises:
        InvalidRequest: It is more.
    """
    if wait > (most := here.settings.long_poll_limit_s):
        raise common.refuse("wait", wait, f"0 to {most} seconds")


async def events(
    here: Platform, uid: str, read: Callable[[], Sequence[Event]], wait: float
) -> JobEvents:
    """What ``read`` finds to have been said, as soon as there is anything."""
    loop = asyncio.get_running_loop()
    until = loop.time() + wait
    found = await here.offload(read)
    with here.hub.watch(uid) as watch:
        while not found and (left := until - loop.time()) > 0 and not watch.closed:
            await watch.wait(min(left, _EVENT_POLL_S))
            found = await here.offload(read)
    return JobEvents(items=[views.event(event) for event in found])


async def wait_for_start(here: Platform, record: TrainJobRecord) -> TrainJobRecord:
    """The record of a job that may have just begun: once it is known to run, or as it stands a
    moment later.

    Its first line is seen before that. Who has seen it wants an answer about a job that runs.
    """
    loop, uid = asyncio.get_running_loop(), record.key.uid
    until = loop.time() + _BEGIN_S
    while record.status.phase is Phase.STARTING and (left := until - loop.time()) > 0:
        record = await here.hub.newer(
            uid, record.revision, lambda: here.jobs.get(uid), timeout_s=left
        )
        if here.hub.closed:
            break
    return record
