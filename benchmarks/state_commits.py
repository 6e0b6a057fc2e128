"""What a read-change-commit costs on SQLite, with and without group commit.

Run: ``python benchmarks/state_commits.py [folder]``; the folder names the disk to measure.
Each thread reads a record of its own, changes its status and commits it with one event.
"""

from __future__ import annotations

import sys
import tempfile
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from sqlalchemy import Connection, event

from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.jobs.spec import JobSpec, from_wire
from cloud_ml.domain.records import Event, Record
from cloud_ml.domain.workloads.phases import WorkloadStatus
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.state.sql import writer
from cloud_ml.state.sql.store import SqlStateStore
from cloud_ml.testing.state.samples import race

NOW = datetime(2026, 1, 1, tzinfo=UTC)
EVENTS = [Event(NOW, "Started", "worker-0 runs on this machine")]
COMMITS = 2400


def make(store: SqlStateStore, name: str) -> Record[JobSpec, WorkloadStatus]:
    spec = from_wire(TrainJob(name, "trainer.task", f"fds://bucket/{name}.tar.gz"))
    return store.create(
        TRAIN_JOB, org="red", name=name, owner="ann", spec=spec, status=WorkloadStatus(), now=NOW
    )


def change(store: SqlStateStore, uid: str, times: int) -> None:
    for _ in range(times):
        record = store.get(TRAIN_JOB, uid)
        assert record is not None
        store.commit_status(
            TRAIN_JOB,
            uid,
            record.status,
            expected_revision=record.revision,
            fence=None,
            now=NOW,
            events=EVENTS,
        )


def commits_per_second(store: SqlStateStore, threads: int, commits: int) -> float:
    uids = [make(store, f"n{time.time_ns()}").key.uid for _ in range(threads)]
    start = time.perf_counter()
    race([partial(change, store, uid, commits // threads) for uid in uids])
    return commits / (time.perf_counter() - start)


def slow_down(store: SqlStateStore, seconds: float) -> None:
    """Make each commit wait as a slower disk would."""

    def wait(_: Connection) -> None:
        time.sleep(seconds)

    event.listen(store._database.writer, "commit", wait)


def main() -> None:
    folder = sys.argv[1] if len(sys.argv) > 1 else None
    bound = writer.MAX_GROUP
    for disk_ms in (0, 5):
        for group in (1, bound, 1, bound):
            writer.MAX_GROUP = group
            with tempfile.TemporaryDirectory(dir=folder) as place:
                store = SqlStateStore.open(f"sqlite:///{Path(place).absolute()}/state.db")
                if disk_ms:
                    slow_down(store, disk_ms / 1000)
                rates = [
                    commits_per_second(store, threads, COMMITS // (4 if disk_ms else 1))
                    for threads in (1, 8, 32)
                ]
                store.close()
            shown = ", ".join(f"{rate:.0f}" for rate in rates)
            print(
                f"commits/s with 1, 8, 32 threads, groups up to {group}, +{disk_ms} ms per "
                f"commit: {shown}"
            )


if __name__ == "__main__":
    main()
