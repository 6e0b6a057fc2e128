"""Who may run: a bounded number of jobs, by priority and age. Derived from committed statuses only."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from datetime import datetime

from cloud_ml.domain.jobs.decide import JobRecord
from cloud_ml.domain.jobs.phases import Phase
from cloud_ml.engines.base import Capacity


class Slots:
    """Places on the engine.

    Kept in memory and rebuilt from the store at the start of a term: ``sync`` is told every status that
    was read or committed. Jobs go strictly in order (priority, then time of queueing), so none starves.

    Args:
        most: How many jobs may hold a place.
        capacity: Their memory limits together stay within it.
        wake: Called with the uid of the job whose turn it is.
    """

    def __init__(self, most: int, capacity: Capacity, wake: Callable[[str], None]) -> None:
        self._most = most
        self._memory = capacity.memory_bytes
        self._wake = wake
        self._held: dict[str, int] = {}
        self._line: list[tuple[int, datetime, str]] = []
        self._waiting: dict[str, int] = {}

    def sync(self, job: JobRecord) -> None:
        """Take note of where a job stands."""
        uid, phase = job.key.uid, job.status.phase
        if phase.active:
            self._waiting.pop(uid, None)
            self._held.setdefault(uid, _memory(job))
        elif phase is Phase.QUEUED:
            if uid not in self._held and uid not in self._waiting:
                self._waiting[uid] = _memory(job)
                heapq.heappush(self._line, (-job.spec.priority, job.status.queued_at or job.created_at, uid))
        else:
            self.forget(uid)

    def take(self, job: JobRecord) -> bool:
        """Whether the queued job may start now; it then holds a place until a later ``sync`` says otherwise."""
        uid = job.key.uid
        if uid in self._held:
            return True
        if self._first() != uid or not self._fits(self._waiting[uid]):
            return False
        heapq.heappop(self._line)
        self._held[uid] = self._waiting.pop(uid)
        self._wake_first()
        return True

    def forget(self, uid: str) -> None:
        """The job wants no place any more."""
        freed = self._held.pop(uid, None) is not None
        waited = self._waiting.pop(uid, None) is not None
        if freed or waited:
            self._wake_first()

    def _wake_first(self) -> None:
        uid = self._first()
        if uid is not None and self._fits(self._waiting[uid]):
            self._wake(uid)

    def _first(self) -> str | None:
        while self._line and self._line[0][2] not in self._waiting:
            heapq.heappop(self._line)
        return self._line[0][2] if self._line else None

    def _fits(self, memory: int) -> bool:
        return len(self._held) < self._most and (not self._held or sum(self._held.values()) + memory <= self._memory)


def _memory(job: JobRecord) -> int:
    return sum((role.resources.memory_bytes or 0) * role.replicas for role in job.spec.roles)
