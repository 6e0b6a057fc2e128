"""The members of jobs in lists of the original wire, whose rows know no tasks. Blocking."""

from __future__ import annotations

from collections.abc import Sequence

from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.records import Summary
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.state.base import StateStore
from cloud_ml.usecases.jobs import members

_MOST_REMEMBERED = 100_000


class MemberLists:
    """Finds the members of jobs by their rows.

    A job of one task stays one, so its record is read once; those of several are read each time.
    """

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._alone: set[str] = set()

    def members_of(self, line: Summary) -> Sequence[tuple[str, Phase]]:
        """The names and phases of a job's members; none for a job of one task."""
        uid = line.key.uid
        if uid in self._alone:
            return ()
        record = self._store.get(TRAIN_JOB, uid)
        if record is None:  # it was deleted meanwhile
            return ()
        if not record.spec.workload.has_peers:
            if len(self._alone) >= _MOST_REMEMBERED:
                self._alone.clear()
            self._alone.add(uid)
            return ()
        tasks = record.spec.workload.tasks
        return [(f"{record.key.name}-{task}", members.phase_of(record, task)) for task in tasks]
