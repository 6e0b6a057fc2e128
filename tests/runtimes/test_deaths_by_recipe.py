"""Tasks of recipes with roles of their own are killed, with the real programs from the registry."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.models.jobs.job import Job
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.sdk.jobs.handles import JobHandle
from support.environments import pack
from support.server import RealServer, eventually, serving, trainer

LIMIT_S = 300.0
PACKAGE = "fds://cloudml/{}-1.0.tar.gz"

pytestmark = [pytest.mark.runtimes, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: RealServer) -> CloudMlClient:
    return server.client()


DASK = """
import os, time
from distributed import Client

def work():
    if os.environ["CLOUDML_ATTEMPT"] == "1" and os.environ["CLOUDML_TASK_RESTART"] == "0":
        print("at work", flush=True)
        time.sleep(600)
    return os.environ["CLOUDML_TASK_RESTART"]

with Client() as client:
    client.wait_for_workers(2)
    print("found", client.submit(work, workers=["worker-1"]).result())
"""


@pytest.mark.parametrize(
    ("victim", "attempt", "restarts", "found"),
    [
        ("worker-1", 1, {"worker-1": 1}, "found 1"),
        ("scheduler-0", 2, {}, "found 0"),
        ("client-0", 2, {}, "found 0"),
    ],
)
def test_a_task_of_dask_dies(
    victim: str,
    attempt: int,
    restarts: dict[str, int],
    found: str,
    server: RealServer,
    client: CloudMlClient,
    tmp_path: Path,
) -> None:
    job, log = killed(server, client, tmp_path, "dask", DASK, victim)
    assert (job.phase, job.attempt) == ("Succeeded", attempt), log
    assert {one.name: one.restarts for one in job.tasks if one.restarts} == restarts
    assert job.retries_used == attempt - 1
    assert f"[client-0] {found}\n" in log


MPI = """
import os, time
from mpi4py import MPI

comm = MPI.COMM_WORLD
ranks = comm.gather(comm.rank)
if os.environ["CLOUDML_ATTEMPT"] == "1":
    if comm.rank == 0:
        print("at work", flush=True)
    time.sleep(600)
if comm.rank == 0:
    print("found", ranks, flush=True)
"""


@pytest.mark.parametrize(
    ("victim", "program"),
    [("launcher-0", "prterun"), ("worker-1", "prted"), ("worker-1", "python")],
)
def test_a_task_of_mpi_dies(
    victim: str, program: str, server: RealServer, client: CloudMlClient, tmp_path: Path
) -> None:
    job, log = killed(server, client, tmp_path, "mpi", MPI, victim, program)
    assert (job.phase, job.attempt, job.retries_used) == ("Succeeded", 2, 1), log
    assert not any(one.restarts for one in job.tasks)
    assert "[launcher-0] found [0, 1]\n" in log


SAVES = """
import signal, sys
from mpi4py import MPI

def end(*_):
    print("saved", flush=True)
    sys.exit(0)

signal.signal(signal.SIGTERM, end)
MPI.COMM_WORLD.barrier()
if MPI.COMM_WORLD.rank == 1:
    print("at work", flush=True)
signal.pause()
"""
RAISES = """
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 1:
    raise KeyError("lost")
MPI.COMM_WORLD.recv(source=1)
"""


def test_processes_of_mpi_have_time_to_save_when_they_are_stopped(
    client: CloudMlClient, tmp_path: Path
) -> None:
    handle = submitted(client, tmp_path, "mpi-stopped", "mpi", SAVES)
    _await_line(handle, b"] at work\n")
    handle.cancel()
    assert handle.wait(LIMIT_S).phase == "Stopped"
    assert b"".join(handle.logs()).count(b"[launcher-0] saved\n") == 2


def test_a_process_of_mpi_that_raises_ends_the_others(
    client: CloudMlClient, tmp_path: Path
) -> None:
    handle = submitted(client, tmp_path, "mpi-raises", "mpi", RAISES, max_retries=0)
    job = handle.wait(LIMIT_S)
    assert (job.phase, job.exit_code) == ("Failed", 1)
    assert "KeyError: 'lost'" in job.message


def killed(
    server: RealServer,
    client: CloudMlClient,
    folder: Path,
    recipe: str,
    source: str,
    victim: str,
    program: str = "python",
) -> tuple[Job, str]:
    """A job at its end, and its log: ``program`` of ``victim`` got SIGKILL when some task said ``at
    work``.
    """
    name = f"{recipe}-without-{victim}-{program}"
    handle = submitted(client, folder, name, recipe, source)
    _await_line(handle, b"] at work\n")
    os.kill(_process(server, handle.uid, victim, program), signal.SIGKILL)
    job = handle.wait(LIMIT_S)
    return job, b"".join(handle.logs()).decode()


def submitted(
    client: CloudMlClient, folder: Path, name: str, recipe: str, source: str, **fields: Any
) -> JobHandle:
    """A job of two workers."""
    uri = PACKAGE.format(name)
    client.storage.upload(pack(trainer(folder, source), folder / f"{name}-1.0.tar.gz"), uri)
    return client.submit_train_job(
        TrainJob(name, "trainer.task", uri, recipe=recipe, worker_count=2, **fields)
    )


def _await_line(handle: JobHandle, words: bytes) -> None:
    seen = b""
    for chunk in handle.logs(follow=True):
        seen += chunk
        if words in seen:
            return
    raise AssertionError(f"the job has ended, and nobody said {words!r}: {seen[-4000:]!r}")


def _process(server: RealServer, uid: str, task: str, program: str) -> int:
    """The process of a task that runs a program whose name begins so."""

    def found() -> int:
        for pid in server.processes_of(uid):
            with suppress(psutil.Error, IndexError):
                process = psutil.Process(pid)
                environment, words = process.environ(), process.cmdline()
                name = f"{environment.get('CLOUDML_ROLE')}-{environment.get('CLOUDML_INDEX')}"
                if name == task and Path(words[0]).name.startswith(program):
                    return pid
        return 0

    pid: int = eventually(found, f"{program} of {task} runs")
    return pid
