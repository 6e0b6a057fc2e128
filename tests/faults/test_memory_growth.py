"""The server is killed between the end of an attempt that had too little memory and the next one:
the larger limit is neither lost nor applied twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_ml.models.jobs.train_job import TrainJob
from faults.scenes import SLICE, Reviver, fragile, insist, order, reached
from support.elastic import waiting
from support.server import RealServer, eventually, trainer

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("failpoints")]
POINTS = (
    "state.commit.before",
    "state.commit.after",
    "controller.ensure.before",
    "controller.ensure.after",
    "ledger.gate.after",
    "supervisor.start.after",
)
"""Points that are passed between the end of an attempt and the start of the next one."""
KILL_ATTEMPT = ("ledger.gate.after", "supervisor.start.after")
"""Those of the supervisor of the next attempt, which another one follows at no retry."""
MIB = 2**20
NEEDS = """
import os, sys
print("attempt", os.environ["CLOUDML_ATTEMPT"], "waits", flush=True)
if os.environ["CLOUDML_ATTEMPT"] == "1":
    with open(sys.argv[1], "rb") as gate:
        gate.read(1)
kept = [os.urandom(1 << 20) for _ in range(100)]
print("done", flush=True)
"""
FIELDS = {
    "memory_limit": "32M",
    "restart": {"memory_factor": 8, "memory_most": "1G"},
    "max_retries": 3,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with fragile(tmp_path_factory.mktemp("fragile")) as server:
        yield server


class Waiting:
    """A job that runs, and runs out of memory when it is told to."""

    def __init__(self, server: RealServer, name: str, folder: Path) -> None:
        self._gate = server.bucket(name)
        os.mkfifo(self._gate)
        self._gate.chmod(0o666)
        made = TrainJob(
            name,
            "trainer.task",
            str(trainer(folder / "code", NEEDS)),
            framework="python",
            job_args=[f"fds://cloudml/{name}"],
            **FIELDS,
        )
        self.handle = waiting(server.client().submit_train_job(made), b"waits")

    def go_on(self) -> None:
        with self._gate.open("wb") as gate:
            gate.write(b".")


def check(job: Waiting, attempts: int = 2) -> None:
    """It had more memory once, and ended well."""
    ended = insist(lambda: job.handle.wait(120))
    log = b"".join(job.handle.logs()).decode()
    assert (ended.phase, ended.attempt, ended.retries_used) == ("Succeeded", attempts, 1), log
    assert [one.limit_bytes for one in ended.memory] == [256 * MIB]
    growths = [one.message for one in job.handle.events() if "more memory" in one.message]
    assert len(growths) == 1
    assert "with more memory: master from 32M to 256M" in growths[0]
    assert log.count("done") == 1


@pytest.mark.parametrize("point", POINTS[::SLICE])
def test_killed_while_a_job_gets_more_memory(
    point: str, server: RealServer, tmp_path: Path
) -> None:
    job = Waiting(server, f"more-{point.replace('.', '-')}", tmp_path)
    order(server, point)
    with Reviver(server):
        job.go_on()
        check(job, attempts=3 if point in KILL_ATTEMPT else 2)
    assert reached(server, point) is not None, "nobody passed"


def test_a_job_runs_out_of_memory_while_no_server_runs(server: RealServer, tmp_path: Path) -> None:
    job = Waiting(server, "more-without-server", tmp_path)
    uid = job.handle.uid
    server.kill()
    job.go_on()

    def is_over() -> bool:
        seen = server.observed(uid)
        return seen is not None and seen.state.over

    eventually(is_over, "it has run out of memory")
    server.start()
    check(job)
