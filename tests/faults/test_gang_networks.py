"""Gangs with a network of their own, whose supervisor, spawner or server is killed: nothing of the
network is left.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.engines.gang import GangKey
from cloud_ml.models.jobs.job import Job
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.sdk.jobs.handles import JobHandle
from faults.scenes import fragile
from support import invariants
from support.environments import pack
from support.server import RealServer, eventually, trainer

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("gang-networks"),
    pytest.mark.skipif(os.geteuid() != 0, reason="a network for each gang takes root"),
]

PACKAGE = "fds://cloudml/pair-1.0.tar.gz"
PAIR = """
import json, os, pathlib, socket, sys, time
place = pathlib.Path(sys.argv[1])
role = os.environ["CLOUDML_ROLE"] + "-" + os.environ["CLOUDML_INDEX"]
attempt = os.environ["CLOUDML_ATTEMPT"]
host, port = json.loads(os.environ["CLOUDML_CLUSTER"])["worker"][0].split(":")
if role == "worker-0":
    with socket.create_server(("", int(port))) as listener:
        connection = listener.accept()[0]
else:
    while True:
        try:
            connection = socket.create_connection((host, int(port)))
            break
        except ConnectionRefusedError:
            time.sleep(0.01)
    (place / ("met-" + attempt)).touch()
while not (place / "go").exists():
    time.sleep(0.01)
connection.sendall(b"hello")
assert connection.makefile("rb").read(5) == b"hello"
"""
"""Two tasks that meet, and speak when they are told to."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with fragile(tmp_path_factory.mktemp("networks"), CLOUDML_ENGINE_NETWORK="none") as server:
        folder = tmp_path_factory.mktemp("code")
        file = pack(trainer(folder, PAIR), folder / "pair-1.0.tar.gz")
        server.client().storage.upload(file, PACKAGE)
        yield server


@pytest.fixture
def client(server: RealServer) -> CloudMlClient:
    return server.client()


class Pair:
    """A job whose two tasks have met."""

    def __init__(self, server: RealServer, client: CloudMlClient, name: str) -> None:
        self._server = server
        self.place = server.bucket(name)
        self.place.mkdir()
        self.place.chmod(0o777)  # the tasks have a user of their own
        self.handle: JobHandle = client.submit_train_job(
            TrainJob(
                name,
                "trainer.task",
                PACKAGE,
                framework="python",
                recipe="cluster",
                worker_count=2,
                job_args=[f"fds://cloudml/{name}"],
            )
        )
        self.have_met(1)
        assert invariants.networks_of_gangs(server), "they have a network of their own"

    def have_met(self, attempt: int) -> None:
        eventually((self.place / f"met-{attempt}").exists, "the tasks have met")

    def kill_supervisor(self) -> None:
        gate = self._server.ledger.gate(GangKey(self.handle.uid, 1))
        assert gate is not None
        os.kill(gate.pid, signal.SIGKILL)

    def go(self) -> Job:
        """Let them speak and end."""
        (self.place / "go").touch()
        job = self.handle.wait(120)
        assert (job.phase, job.reason) == ("Succeeded", "Completed"), job.message
        return job


def test_the_invariants_see_ports_that_jobs_have(server: RealServer, client: CloudMlClient) -> None:
    pair = Pair(server, client, "pair-has-ports")
    assert invariants.task_ports(server) == 2
    assert "2 ports of engine.ports are given out" in invariants.left_behind(server, limit_s=0.5)
    assert pair.go().attempt == 1
    assert invariants.left_behind(server) == []


@pytest.mark.parametrize(("family", "host"), [("AF_INET", "127.0.0.1"), ("AF_INET6", "::1")])
def test_the_invariants_see_who_listens_in_a_network(family: str, host: str) -> None:
    network = Path("/proc", str(os.getpid()), "ns", "net")
    with socket.create_server((host, 0), family=getattr(socket, family)) as listener:
        port = listener.getsockname()[1]
        assert port in invariants.listeners_in(network)
    assert port not in invariants.listeners_in(network)


def test_the_end(server: RealServer, client: CloudMlClient) -> None:
    assert Pair(server, client, "pair-ends").go().attempt == 1
    assert invariants.left_behind(server) == []


def test_the_supervisor_is_killed(server: RealServer, client: CloudMlClient) -> None:
    pair = Pair(server, client, "pair-supervisor")
    pair.kill_supervisor()
    pair.have_met(2)
    assert pair.go().attempt == 2
    assert invariants.left_behind(server) == []


def test_the_spawner_is_killed(server: RealServer, client: CloudMlClient) -> None:
    pair = Pair(server, client, "pair-spawner")
    server.kill_spawner()
    after = Pair(server, client, "pair-after-spawner")  # which needs a new one
    assert after.go().attempt == 1
    assert pair.go().attempt == 1
    assert invariants.left_behind(server) == []


def test_the_server_is_killed(server: RealServer, client: CloudMlClient) -> None:
    pair = Pair(server, client, "pair-server")
    server.kill()
    server.start()
    assert pair.go().attempt == 1
    assert invariants.left_behind(server) == []


def test_all_of_them_are_killed(server: RealServer, client: CloudMlClient) -> None:
    pair = Pair(server, client, "pair-all")
    server.kill()
    server.kill_spawner()
    pair.kill_supervisor()
    server.start()
    pair.have_met(2)
    assert pair.go().attempt == 2
    assert invariants.left_behind(server) == []
