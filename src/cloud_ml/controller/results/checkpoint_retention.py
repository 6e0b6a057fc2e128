"""Removes the checkpoints that jobs do not want to keep. Belongs to one event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from cloud_ml.domain.jobs.kind import TrainJobRecord
from cloud_ml.domain.records import Record
from cloud_ml.domain.workloads.checkpoints import NotedCheckpoint
from cloud_ml.domain.workloads.phases import WorkloadStatus
from cloud_ml.domain.workloads.spec import W_contra
from cloud_ml.usecases.offload import Offload

_QUICK_S = 0.5
"""A pass waits so long. Most checkpoints are removed at once; a job may make others."""
_MOST_AT_ONCE = 20
logger = logging.getLogger(__name__)


class CheckpointRetention(Protocol[W_contra]):
    """Removes the checkpoints that workloads of a kind do not want to keep."""

    async def look(
        self, job: Record[W_contra, WorkloadStatus], /
    ) -> Sequence[NotedCheckpoint] | None:
        """Those that are to be committed as going; ``None`` if they are committed already. Those
        are removed meanwhile.
        """


class Superseding(Protocol):
    """Knows which checkpoints of a job may go, and removes them. Blocking."""

    def superseded(self, job: TrainJobRecord, /) -> Sequence[NotedCheckpoint]:
        """Those that are there and need not be kept, the oldest first."""

    def remove(
        self, job: TrainJobRecord, doomed: Sequence[NotedCheckpoint], stop: Callable[[], bool], /
    ) -> None:
        """Remove some of them, each as a whole."""

    def remove_rest(self, job: TrainJobRecord, gone: Sequence[NotedCheckpoint], /) -> None:
        """Remove what a killed server may have left of some that are gone."""


class TrainJobCheckpointRetention:
    """Of train jobs with ``checkpoint.keep``."""

    def __init__(self, checkpoints: Superseding, offload: Offload) -> None:
        self._checkpoints = checkpoints
        self._offload = offload
        self._removing: dict[str, asyncio.Task[None]] = {}

    async def look(self, job: TrainJobRecord) -> Sequence[NotedCheckpoint] | None:
        """See ``CheckpointRetention``. Only what is committed is removed: who refers to a
        checkpoint after that is refused.
        """
        try:
            return await self._look(job)
        except Exception:  # the next look tries again; the job does not suffer from it
            extra = {"job": job.key.name, "uid": job.key.uid}
            logger.exception("checkpoints of a job cannot be removed", extra=extra)
            return None

    async def _look(self, job: TrainJobRecord) -> Sequence[NotedCheckpoint] | None:
        if not await self._has_removed(job.key.uid):
            return None
        found, committed = await self._find_superseded(job), job.status.dropped_checkpoints
        if found and found == committed:
            self._removing[job.key.uid] = asyncio.create_task(self._remove(job, found))
            if not await self._has_removed(job.key.uid):
                return None
            found = await self._find_superseded(job)
        if gone := [one for one in committed if one not in found]:
            await self._offload.long(job.key.org, self._checkpoints.remove_rest, job, gone)
        return found if found != committed else None

    async def _find_superseded(self, job: TrainJobRecord) -> tuple[NotedCheckpoint, ...]:
        found = await self._offload.long(job.key.org, self._checkpoints.superseded, job)
        return tuple(found[:_MOST_AT_ONCE])

    async def _remove(self, job: TrainJobRecord, doomed: Sequence[NotedCheckpoint]) -> None:
        stop = self._offload.stopping
        await self._offload.long(job.key.org, self._checkpoints.remove, job, doomed, stop)

    async def _has_removed(self, uid: str) -> bool:
        """Whether nothing of a job is being removed any more."""
        task = self._removing.get(uid)
        if task is None:
            return True
        done, _ = await asyncio.wait({task}, timeout=_QUICK_S)
        if done:
            self._removing.pop(uid, None)
            task.result()
        return bool(done)
