"""Who uses a secret is found without holding the documents of many jobs, which may be a megabyte
each.
"""

from __future__ import annotations

from unittest.mock import Mock

from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.jobs.spec import from_wire
from cloud_ml.domain.workloads.phases import WorkloadStatus
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.state.memory import MemoryStateStore
from cloud_ml.usecases.clock import system_clock
from cloud_ml.usecases.secret_users import users_of


def test_few_documents_are_read_at_a_time() -> None:
    store = MemoryStateStore()
    for number in range(60):
        secrets = ["db-password=DB_PASSWORD"] if number == 3 else None
        job = TrainJob(f"j{number}", "trainer.task", "fds://b/t.tar.gz", secrets=secrets)
        store.create(
            TRAIN_JOB,
            org="mine",
            name=f"j{number}",
            owner="mei",
            spec=from_wire(job),
            status=WorkloadStatus(),
            now=system_clock(),
        )
    read = Mock(side_effect=store.documents)
    store.documents = read  # type: ignore[method-assign]
    assert users_of(store, "mine", "db-password") == ["job j3"]
    assert max(len(call.args[1]) for call in read.call_args_list) <= 10
