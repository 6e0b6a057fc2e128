"""Places and lines as the store has them, at the start of a term."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime

from cloud_ml.controller.placement.slots import Slots
from cloud_ml.domain.records import Kind, Summary
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.domain.workloads.record import WorkloadRecord
from cloud_ml.domain.workloads.spec import W
from cloud_ml.errors import TryAgain
from cloud_ml.state.base import StateStore
from cloud_ml.usecases.offload import Offload

PLACED = tuple(phase for phase in Phase if phase.active)
_PAGE = 200
logger = logging.getLogger(__name__)


async def fill(
    slots: Slots,
    store: StateStore,
    kind: Kind[W, WorkloadStatus],
    offload: Offload,
    phases: Sequence[Phase] = (*PLACED, Phase.QUEUED),
) -> list[str]:
    """Have the places as they are taken, and the line as it stands, before any job of it is looked
    at.

    Otherwise jobs that happen to be looked at first would overtake older ones, or take the places
    of those that run. Returns who is in these phases, the oldest first.
    """
    found: list[tuple[datetime, str]] = []
    for phase in phases:
        after: int | None = None
        while True:
            lines = await offload(store.list, kind, indexes=[phase.value], after=after, limit=_PAGE)
            for job in await offload(_readable, store, kind, lines.items):
                slots.sync(job)
            found += [(line.created_at, line.key.uid) for line in lines.items]
            if (after := lines.next) is None:
                break
    return [uid for _, uid in sorted(found)]


def _readable(
    store: StateStore, kind: Kind[W, WorkloadStatus], lines: Sequence[Summary]
) -> list[WorkloadRecord]:
    """The records of a page. One that cannot be read holds up no other: its own pass will say
    what is wrong.
    """
    found: list[WorkloadRecord] = []
    for line in lines:
        try:
            record = store.get(kind, line.key.uid)
        except TryAgain:
            raise
        except Exception:
            logger.exception(
                "the record of %s cannot be read", line.key.name, extra={"uid": line.key.uid}
            )
            continue
        if record is not None:
            found.append(record)
    return found
