"""Checkpoints that go are committed first, then removed; nobody waits long for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from cloud_ml.controller.results.checkpoint_retention import TrainJobCheckpointRetention
from cloud_ml.domain.jobs.kind import TrainJobRecord
from cloud_ml.domain.workloads.checkpoints import NotedCheckpoint
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.usecases.offload import Offload
from support.jobs import NOW, job_in

pytestmark = pytest.mark.anyio
OLD = NotedCheckpoint("old", 1, NOW)


class Bucket:
    """Has one checkpoint that may go. Its removal waits for ``gate``."""

    def __init__(self) -> None:
        self.there = [OLD]
        self.cleared: list[NotedCheckpoint] = []
        self.gate = threading.Event()
        self.gate.set()
        self.fails = False

    def superseded(self, job: TrainJobRecord) -> Sequence[NotedCheckpoint]:
        if self.fails:
            raise OSError("the disk is gone")
        return list(self.there)

    def remove(
        self, job: TrainJobRecord, doomed: Sequence[NotedCheckpoint], stop: Callable[[], bool]
    ) -> None:
        self.gate.wait(60)
        self.there = [one for one in self.there if one not in doomed]

    def remove_rest(self, job: TrainJobRecord, gone: Sequence[NotedCheckpoint]) -> None:
        self.cleared += gone


def committed(job: TrainJobRecord, found: Sequence[NotedCheckpoint] | None) -> TrainJobRecord:
    assert found is not None
    return replace(job, status=replace(job.status, dropped_checkpoints=tuple(found)))


async def test_what_is_to_go_is_committed_before_it_goes() -> None:
    bucket, job = Bucket(), job_in(Phase.RUNNING, fields={"checkpoint": {"keep": 1}})
    retention = TrainJobCheckpointRetention(bucket, Offload(2))
    first = await retention.look(job)
    assert (list(first or ()), bucket.there) == ([OLD], [OLD])
    job = committed(job, first)
    assert await retention.look(job) == ()
    assert (bucket.there, bucket.cleared) == ([], [OLD])
    assert await retention.look(committed(job, ())) is None


async def test_a_removal_that_takes_long_goes_on_between_looks() -> None:
    bucket, job = Bucket(), job_in(Phase.RUNNING, fields={"checkpoint": {"keep": 1}})
    retention = TrainJobCheckpointRetention(bucket, Offload(2))
    job = committed(job, await retention.look(job))
    bucket.gate.clear()
    assert await retention.look(job) is None
    assert await retention.look(job) is None, "it is begun once"
    bucket.gate.set()
    while (found := await retention.look(job)) is None:
        pass
    assert (found, bucket.there) == ((), [])


async def test_a_bucket_that_cannot_be_read_does_no_harm_to_the_job() -> None:
    bucket, job = Bucket(), job_in(Phase.RUNNING, fields={"checkpoint": {"keep": 1}})
    retention = TrainJobCheckpointRetention(bucket, Offload(2))
    bucket.fails = True
    assert await retention.look(job) is None
    bucket.fails = False
    assert await retention.look(job) == (OLD,)
