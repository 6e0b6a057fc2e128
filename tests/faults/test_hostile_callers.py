"""Callers without a token that flood a port with what costs them nothing, beside callers who
must not notice.
"""

from __future__ import annotations

import contextlib
import http.client
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cloud_ml.domain.services.routes import Route
from support.fairness import Latency
from support.gateway_process import TESTS, GatewayProcess, environment, free_port, honest_replica
from support.hostile_callers import BULK, FLOODS
from support.replica_sockets import backend, replica_folder
from support.serving import model_server, save_linear

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("hostile"), pytest.mark.alone]

ROUNDS = 12
MEMORY_BYTES = 96 << 20
"""What a process may grow by under a flood."""


@dataclass(frozen=True)
class Target:
    """A port to flood, a connection of another caller, and the process that serves both."""

    port: int
    other: http.client.HTTPConnection
    pid: int

    def call(self) -> float:
        """Seconds that a call of the other caller takes."""
        begun = time.perf_counter()
        self.other.request("POST", "/v1/models/m:predict", b'{"instances": [1]}')
        answer = self.other.getresponse()
        answer.read()
        assert answer.status == 200
        return time.perf_counter() - begun

    def memory(self) -> int:
        """Bytes that the process has in memory."""
        return int(Path(f"/proc/{self.pid}/statm").read_text("ascii").split()[1]) << 12


@pytest.fixture(scope="module")
def gateway() -> Iterator[Target]:
    """Floods go to a service that wants tokens, calls to the service of another organisation."""
    folder = Path(tempfile.mkdtemp(prefix="gw-"))  # paths of sockets are short
    port, flooded = free_port(), free_port()
    try:
        with honest_replica(replica_folder(folder, "honest")), GatewayProcess(folder) as process:
            backends = (backend("honest"),)
            routes = {
                "honest": Route(port, "others", "honest/v1", open=True, backends=backends),
                "flooded": Route(flooded, "mine", "flooded/v1", backends=backends),
            }
            process.tell(routes)
            with contextlib.closing(
                http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            ) as other:
                yield Target(flooded, other, process.pid)
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A model server asks nobody for a token: floods and calls go to the same port."""
    folder = tmp_path_factory.mktemp("models")
    save_linear(folder / "1")
    with (
        model_server("--model_name", "m", "--model_base_path", str(folder)) as running,
        contextlib.closing(
            http.client.HTTPConnection("127.0.0.1", running.port, timeout=60)
        ) as other,
    ):
        yield Target(running.port, other, running.process.pid)


@contextlib.contextmanager
def flood(name: str, port: int) -> Iterator[None]:
    """A process that floods a port."""
    command = [sys.executable, "-m", "support.hostile_callers", name, str(port)]
    process = subprocess.Popen(command, cwd=TESTS, env=environment(), stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        yield
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("where", ["gateway", "server"])
@pytest.mark.parametrize("name", sorted(set(FLOODS) - BULK))
def test_others_go_on(request: pytest.FixtureRequest, where: str, name: str) -> None:
    """Their calls take at most twice as long as before, and memory is bounded."""
    target: Target = request.getfixturevalue(where)
    before, seen = target.memory(), []
    for _ in range(ROUNDS):  # a busy machine spoils some rounds; a flood spoils them all
        quiet = Latency.of(target.call)
        with flood(name, target.port):
            loud = Latency.of(target.call)
        seen.append((quiet, loud))
        assert target.memory() - before < MEMORY_BYTES
        if not loud.harmed(quiet):
            return
    raise AssertionError(f"calls of others, quiet and beside it: {seen}")
