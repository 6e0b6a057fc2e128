"""What watchers of jobs may take of the server's memory: jobs can be a megabyte each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import aclosing
from unittest.mock import Mock

import pytest

from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.jobs.spec import from_wire
from cloud_ml.domain.workloads.phases import WorkloadStatus
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.state.memory import MemoryStateStore
from cloud_ml.usecases import feed
from cloud_ml.usecases.clock import system_clock
from cloud_ml.usecases.feed import RecordFeed
from cloud_ml.usecases.offload import Offload

pytestmark = pytest.mark.anyio
HUGE = ["x" * 60_000] * 10


@pytest.fixture
def offload() -> Iterator[Offload]:
    offload = Offload(threads=1)
    yield offload
    offload.close()


def submit(
    store: MemoryStateStore, name: str, *, org: str = "mine", arguments: list[str] | None = None
) -> None:
    job = TrainJob(name, "trainer.task", "fds://b/t.tar.gz", job_args=arguments)
    store.create(
        TRAIN_JOB,
        org=org,
        name=name,
        owner="mei",
        spec=from_wire(job),
        status=WorkloadStatus(),
        now=system_clock(),
    )


async def test_whoever_is_behind_reads_few_huge_jobs_ahead(offload: Offload) -> None:
    """A watcher that does not read held two hundred jobs, of a megabyte each, and an
    organisation has many watchers.
    """
    store = MemoryStateStore()
    names = [f"j{number}" for number in range(20)]
    for name in names:
        submit(store, name, arguments=HUGE)
    read = Mock(side_effect=store.get)
    store.get = read  # type: ignore[method-assign]
    async with aclosing(
        RecordFeed(store, TRAIN_JOB, offload).watch("mine", after=0, heartbeat_s=60)
    ) as seen:
        first = await anext(seen)
        assert first is not None
        assert read.call_count < 5
        names_seen = [first.name]
        while len(names_seen) < len(names):
            one = await anext(seen)
            assert one is not None
            names_seen.append(one.name)
    assert names_seen == names


async def test_what_all_watchers_share_is_bounded(
    offload: Offload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "_KEPT_BYTES", 5_000_000)
    store = MemoryStateStore()
    jobs = RecordFeed(store, TRAIN_JOB, offload, poll_s=0.01)
    async with aclosing(jobs.watch("mine", after=0, heartbeat_s=60)) as seen:
        for number in range(20):
            submit(store, f"j{number}", arguments=HUGE)
            one = await anext(seen)
            assert one is not None
            assert one.name == f"j{number}"
        assert 0 <= jobs.kept_bytes <= 5_000_000


async def test_jobs_of_others_are_not_read_for_a_watcher(offload: Offload) -> None:
    store = MemoryStateStore()
    for number in range(50):
        submit(store, f"j{number}", org="others")
    submit(store, "own")
    read = Mock(side_effect=store.get)
    store.get = read  # type: ignore[method-assign]
    async with aclosing(
        RecordFeed(store, TRAIN_JOB, offload).watch("mine", after=0, heartbeat_s=60)
    ) as seen:
        one = await anext(seen)
    assert one is not None
    assert one.name == "own"
    assert read.call_count == 1
