"""Ports that are given to tasks, and that somebody else has already."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.models.jobs.train_job import TrainJob
from support import deaths
from support.server import RealServer, serving, trainer

TEST = (
    "tests/acceptance/test_taken_ports.py::"
    "test_an_attempt_whose_port_is_taken_is_followed_by_one_with_other_ports"
)
JOBS: dict[str, dict[str, Any]] = {
    "several": {"restart": {"policy": "Never"}},
    "alone": {"task_retries": 10},
    "exit-code": {"restart": {"policy": "ExitCode"}},
}

THIEF = """
import socket, time
listener = socket.create_server(("127.0.0.1", 29981))
print("ready", flush=True)
time.sleep(600)
"""
SOURCE = """
import os, socket
listener = socket.create_server(("", int(os.environ["CLOUDML_PORT"])))
print("port", os.environ["CLOUDML_PORT"], "of attempt", os.environ["CLOUDML_ATTEMPT"])
"""


@pytest.fixture(scope="module", params=["tenant", "host"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealServer]:
    if request.param == "tenant" and (os.geteuid() or not shutil.which("bwrap")):
        pytest.skip("organisations have networks of their own only as root, with bubblewrap")
    folder = tmp_path_factory.mktemp(f"taken-ports-{request.param}")
    variables = {"CLOUDML_ENGINE_NETWORK": request.param, "CLOUDML_ENGINE_PORTS": "29981-29984"}
    with serving(folder, **variables) as server:
        yield server


def test_an_attempt_whose_port_is_taken_is_followed_by_one_with_other_ports(
    server: RealServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    client, folder = server.client(), tmp_path_factory.mktemp("code")
    code = str(trainer(folder / "thief", THIEF))
    thief = client.submit_train_job(TrainJob("thief", "trainer.task", code, framework="python"))
    assert b"ready" in next(thief.logs(follow=True, installation=False))
    for death in deaths.played(TEST):
        submit_robbed(client, folder / death.job, death.job)
    thief.cancel(grace="0")


def submit_robbed(client: CloudMlClient, folder: Path, job: str) -> None:
    """A job of two tasks of which one gets the port of the thief at first."""
    gang = client.submit_train_job(
        TrainJob(
            f"robbed-{job}",
            "trainer.task",
            str(trainer(folder, SOURCE)),
            worker_count=2,
            recipe="cluster",
            framework="python",
            **JOBS[job],
        )
    )
    ended = gang.wait(60)
    log = b"".join(gang.logs()).decode()
    assert (ended.phase, ended.attempt, ended.retries_used) == ("Succeeded", 2, 0), log
    assert "cloudml: PortTaken: port 29981 of worker-0 is in use by another process" in log
    assert sorted(line for line in log.splitlines() if "] port " in line) == [
        "[worker-0] port 29983 of attempt 2",
        "[worker-1] port 29984 of attempt 2",
    ]
    messages = [event.message for event in gang.events() if event.reason == "Restarting"]
    assert len(messages) == 1
    assert "PortTaken" in messages[0]
    assert "it costs no retry" in messages[0]


def test_no_connection_is_given_a_port_that_is_for_tasks(
    server: RealServer, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    source = "print(open('/proc/sys/net/ipv4/ip_local_reserved_ports').read())\n"
    code = str(trainer(tmp_path / "reads", source))
    job = server.client().submit_train_job(
        TrainJob("reads-ports", "trainer.task", code, framework="python")
    )
    assert job.wait(60).succeeded
    reserved = b"".join(job.logs(installation=False)).strip()
    # The network of the machine is not the platform's: what it gives to others stays as it is.
    assert (reserved == b"29981-29984") is (request.node.callspec.params["server"] == "tenant")
