"""Jobs that start again with more memory when they had too little."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.models.jobs.job import Job, JobMemory
from cloud_ml.models.jobs.train_job import TrainJob
from support.server import RealServer

Run = Callable[..., tuple[Job, str]]
MIB = 2**20

NEEDS = """
import os, sys
print("attempt", os.environ["CLOUDML_ATTEMPT"], flush=True)
kept = [os.urandom(1 << 20) for _ in range(int(sys.argv[1]))]
print("done", len(kept), flush=True)
"""
ONE_NEEDS = """
import os
hoards = os.environ["CLOUDML_ATTEMPT"] == "1" and os.environ["CLOUDML_INDEX"] == "1"
while hoards and os.environ["CLOUDML_ROLE"] == "worker":
    kept = globals().setdefault("kept", [])
    kept.append(os.urandom(1 << 20))
print("done", flush=True)
"""


@pytest.mark.slow
def test_a_job_gets_more_memory_until_it_has_enough(
    client: CloudMlClient, server: RealServer, code: Callable[..., str]
) -> None:
    options = ("-M", "64M", "--memory-factor", "2", "--memory-most", "1G", "-F", "python")
    submit = ("jobs", "submit", "needs-more", "trainer.task", code(NEEDS))
    server.cli(*submit, *options, "--", "200").good()
    handle = client.get_train_job("needs-more")
    job = handle.wait(60)
    log = b"".join(handle.logs()).decode()
    assert (job.phase, job.attempt, job.retries_used, job.max_retries) == ("Succeeded", 3, 2, 3)
    assert job.memory == [JobMemory(role="master", limit_bytes=256 * MIB, first_bytes=64 * MIB)], (
        log
    )
    assert log.count("done 200") == 1
    described = server.cli("jobs", "describe", "needs-more").good().out
    assert re.search(r"Memory limit: +from 64M to 256M\n", described)
    messages = [one.message for one in handle.events() if one.reason == "Restarting"]
    assert "with more memory: master from 64M to 128M" in messages[0]
    assert "with more memory: master from 128M to 256M" in messages[1]


def test_only_the_role_that_had_too_little_gets_more(client: CloudMlClient, run: Run) -> None:
    roles = {"worker": {"count": 2}, "ps": {"memory_limit": "100M"}}
    restart = {"memory_factor": 1.5}
    job, log = run(
        "one-role-needs-more",
        ONE_NEEDS,
        recipe="cluster",
        cluster_spec=roles,
        memory_limit="64M",
        restart=restart,
        framework="python",
    )
    assert (job.phase, job.attempt) == ("Succeeded", 2), log
    assert job.memory == [JobMemory(role="worker", limit_bytes=96 * MIB, first_bytes=64 * MIB)]
    messages = [one.message for one in client.train_job_events(job.name)]
    again = [message for message in messages if message.startswith("worker-1: OOMKilled: 64M")]
    assert len(again) == 1
    assert "with more memory: worker from 64M to 96M" in again[0]


def test_a_job_fails_that_could_never_have_more(
    serve: Callable[..., RealServer], code: Callable[..., str]
) -> None:
    server = serve()
    server.cli("admin", "quota", "set", "default", "--memory", "100M").good()
    job = TrainJob(
        "too-large",
        "trainer.task",
        code(NEEDS),
        job_args=["200"],
        memory_limit="64M",
        restart={"memory_factor": 2},
        framework="python",
    )
    ended = server.client().submit_train_job(job).wait(60)
    assert (ended.phase, ended.reason, ended.attempt) == ("Failed", "OOMKilled", 1)
    assert ended.message.startswith("OOMKilled: 64M")
    assert "the quota of memory for train jobs: 0B of 100M are used, the job asks for 128M" in (
        ended.message
    )
    assert ended.memory == []


@pytest.mark.slow
def test_a_job_waits_for_its_memory_without_holding_what_it_had(
    serve: Callable[..., RealServer], code: Callable[..., str]
) -> None:
    server = serve()
    client = server.client()
    server.cli("admin", "quota", "set", "default", "--memory", "320M").good()
    sleeps = code("import time; print('up', flush=True); time.sleep(600)")
    other = client.submit_train_job(
        TrainJob("other", "trainer.task", sleeps, memory_limit="128M", framework="python")
    )
    waits = client.submit_train_job(
        TrainJob(
            "waits-for-memory",
            "trainer.task",
            code(NEEDS),
            job_args=["180"],
            memory_limit="64M",
            restart={"memory_factor": 4},
            framework="python",
        )
    )
    while waits.job.reason != "QuotaExceeded":
        waits.await_change(60)
    assert (waits.job.phase, waits.job.attempt) == ("Queued", 2)
    assert "128M / 320M" in server.cli("quota", "list").good().out
    other.cancel(grace="0")
    ended = waits.wait(60)
    assert (ended.phase, ended.attempt) == ("Succeeded", 2), b"".join(waits.logs()).decode()
    assert ended.memory[0].limit_bytes == 256 * MIB
