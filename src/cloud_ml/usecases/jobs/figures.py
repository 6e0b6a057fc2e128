"""What is counted of jobs when somebody asks for metrics."""

from __future__ import annotations

import time
from collections.abc import Mapping

from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.errors import CloudMlError
from cloud_ml.observability.metrics import Family, Reading
from cloud_ml.state.base import StateStore

_KEPT_S = 10.0


class JobFigures:
    """Jobs by phase. Counting walks an index, so the answer is kept for a few seconds. Blocking."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._counted_at = 0.0
        self._counts: Mapping[tuple[str, ...], float] = {}

    def families(self) -> list[Family]:
        """For a scrape."""
        return [Reading("cloudml_jobs", "Jobs by phase.", ("phase",), self._by_phase)]

    def _by_phase(self) -> Mapping[tuple[str, ...], float]:
        if time.monotonic() - self._counted_at > _KEPT_S or not self._counted_at:
            try:
                counts = self._store.counts(TRAIN_JOB)
            except CloudMlError:  # the other figures are needed most when the store is down
                return {}
            self._counts = {(phase.value,): float(counts.get(phase.value, 0)) for phase in Phase}
            self._counted_at = time.monotonic()
        return self._counts
