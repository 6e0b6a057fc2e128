"""What counts against a quota while it runs."""

from __future__ import annotations

from typing import Any

from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.state.memory import MemoryStateStore
from cloud_ml.usecases.usage import Used, measure_use
from support.jobs import NOW, spec_of


def counted(**status: Any) -> Used:
    store = MemoryStateStore()
    fields = {"worker_count": "1:8", "recipe": "pytorch", "cpu_limit": "1", "memory_limit": "1G"}
    known = WorkloadStatus(phase=Phase.RUNNING, **status)
    store.create(
        TRAIN_JOB,
        org="o",
        name="a",
        owner="u",
        spec=spec_of("a", **fields),
        status=known,
        now=NOW,
    )
    return measure_use(store, "o", TRAIN_JOB)


def test_an_elastic_job_counts_with_the_tasks_that_it_has() -> None:
    two = {"worker": 2}
    assert counted(world=two) == Used(jobs=1, cpu_millis=2000, memory_bytes=2 * 2**30)
    larger = counted(world=two, next_world={"worker": 3})
    assert larger.memory_bytes == 3 * 2**30, "the room is its own already"
