"""Jobs that have as many tasks as there is room for, on a real server."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.sdk.jobs.handles import JobHandle
from support.elastic import MODEL, TRAINER, results, waiting
from support.server import RealServer

MEMORY_MIB = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
OPTIONS = ("-w", "1:4", "-M", "100M", "--recipe", "pytorch", "-F", "python")


def started(client: CloudMlClient, code: Callable[..., str], left_mib: int) -> JobHandle:
    """A job that runs and leaves so much of the memory to others."""
    source = code("import time; print('up', flush=True); time.sleep(600)")
    memory = f"{MEMORY_MIB - left_mib}M"
    job = TrainJob("large", "trainer.task", source, memory_limit=memory, framework="python")
    return waiting(client.submit_train_job(job), b"up")


def events(job: JobHandle) -> list[tuple[str, str]]:
    return [(one.reason, one.message) for one in job.events()]


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.slow
def test_a_job_starts_with_what_fits_and_becomes_larger_when_there_is_room(
    tasks: int, serve: Callable[..., RealServer], code: Callable[..., str]
) -> None:
    server = serve()
    client = server.client()
    large = started(client, code, left_mib=100 * tasks + 50)
    trainer = code(TRAINER)
    server.cli("jobs", "submit", "elastic", "trainer.task", trainer, *OPTIONS, "--", "few").good()
    elastic = waiting(client.get_train_job("elastic"), b"waits")
    assert dict(elastic.refresh().world) == {"worker": tasks}
    assert [task.name for task in elastic.job.tasks] == [f"worker-{i}" for i in range(tasks)]
    described = server.cli("jobs", "describe", "elastic").good().out
    assert re.search(rf"World: +worker: {tasks}\n", described)
    server.kill()
    server.start()
    large.cancel()
    job = elastic.wait(120)
    assert job.succeeded, b"".join(elastic.logs()).decode()
    assert (job.attempt, job.retries_used, dict(job.world)) == (2, 0, {"worker": 4})
    assert results(elastic) == [
        f"{tasks} tasks from step 0",
        "4 tasks from step 20",
        f"model {MODEL}",
    ]
    events_seen = events(elastic)
    assert ("Starting", f"attempt 1 is starting with {tasks} of 4 tasks") in events_seen
    assert ("Resized", f"resized from {tasks} to 4 tasks") in events_seen
    assert ("Starting", "attempt 2 is starting with 4 of 4 tasks") in events_seen


def test_a_job_becomes_smaller_instead_of_waiting(
    serve: Callable[..., RealServer], code: Callable[..., str]
) -> None:
    server = serve()
    client = server.client()
    trainer = code(TRAINER)
    server.cli("jobs", "submit", "elastic", "trainer.task", trainer, *OPTIONS, "--", "first").good()
    elastic = waiting(client.get_train_job("elastic"), b"waits")
    assert dict(elastic.refresh().world) == {"worker": 4}
    elastic.pause()
    while elastic.phase != "Paused":
        elastic.await_change(60)
    started(client, code, left_mib=350)
    elastic.resume()
    job = elastic.wait(120)
    assert job.succeeded, b"".join(elastic.logs()).decode()
    assert (job.attempt, job.retries_used, dict(job.world)) == (2, 0, {"worker": 3})
    assert results(elastic) == ["4 tasks from step 0", "3 tasks from step 20", f"model {MODEL}"]
    assert ("Resized", "resized from 4 to 3 tasks") in events(elastic)


@pytest.mark.slow
def test_the_next_attempt_is_as_large_as_a_lowered_quota_allows(
    serve: Callable[..., RealServer], code: Callable[..., str]
) -> None:
    server = serve()
    trainer = code(TRAINER)
    server.cli("jobs", "submit", "elastic", "trainer.task", trainer, *OPTIONS, "--", "first").good()
    elastic = waiting(server.client().get_train_job("elastic"), b"waits")
    server.cli("admin", "quota", "set", "default", "--memory", "250M").good()
    assert "400M / 250M" in server.cli("quota", "list").good().out, "what runs runs on"
    elastic.restart()
    job = elastic.wait(120)
    assert job.succeeded, b"".join(elastic.logs()).decode()
    assert (job.attempt, job.retries_used, dict(job.world)) == (2, 0, {"worker": 2})
    assert results(elastic) == ["4 tasks from step 0", "2 tasks from step 20", f"model {MODEL}"]
