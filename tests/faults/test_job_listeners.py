"""Jobs without a network go on to call the server, whoever of its processes is killed meanwhile."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_ml.engines.gang import GangKey
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.sdk.jobs.handles import JobHandle
from faults.scenes import fragile
from support import invariants
from support.environments import pack
from support.server import RealServer, eventually, trainer

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("job-listeners")]

PACKAGE = "fds://cloudml/calling-1.0.tar.gz"
CALLING = """
import os, pathlib, sys, time, urllib.request
place = pathlib.Path(sys.argv[1])
request = urllib.request.Request(
    os.environ["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow/experiments/search?max_results=1",
    headers={"Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"]},
)
while not (place / "go").exists():
    try:
        urllib.request.urlopen(request, timeout=30).read()
        (place / "answer").write_text(str(time.time()))
    except OSError as error:
        if getattr(error, "code", 500) < 500:
            raise
    time.sleep(0.02)
"""
"""Calls the server again and again. A server that is killed breaks a call; one that refuses a token
ends the job.
"""
JOBS = 3


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with fragile(tmp_path_factory.mktemp("listeners"), CLOUDML_ENGINE_NETWORK="none") as server:
        folder = tmp_path_factory.mktemp("code")
        file = pack(trainer(folder, CALLING), folder / "calling-1.0.tar.gz")
        server.client().storage.upload(file, PACKAGE)
        yield server


class Calling:
    """A job that calls."""

    def __init__(self, server: RealServer, name: str) -> None:
        self._server = server
        self._place = server.bucket(name)
        self._place.mkdir()
        self._place.chmod(0o777)  # the job has a user of its own
        self.handle: JobHandle = server.client().submit_train_job(
            TrainJob(
                name,
                "trainer.task",
                PACKAGE,
                framework="python",
                max_retries=1,
                job_args=[f"fds://cloudml/{name}"],
            )
        )

    def goes_on(self) -> None:
        """Wait until it was answered again, twice: the first may have been under way."""
        self._is_answered()
        self._is_answered()

    def _is_answered(self) -> None:
        before = self._last_answer
        eventually(lambda: self._last_answer not in ("", before), "it is answered")

    @property
    def _last_answer(self) -> str:
        try:
            return (self._place / "answer").read_text()
        except OSError:
            return ""

    def kill_supervisor(self) -> None:
        gate = self._server.ledger.gate(GangKey(self.handle.uid, 1))
        assert gate is not None
        os.kill(gate.pid, signal.SIGKILL)

    def end(self, attempt: int = 1) -> None:
        (self._place / "go").touch()
        job = self.handle.wait(120)
        assert (job.phase, job.reason, job.attempt) == ("Succeeded", "Completed", attempt)


def offers(server: RealServer) -> list[Path]:
    return list(server.ledger.listeners.iterdir())


def test_whoever_is_killed_all_jobs_go_on_to_call(server: RealServer) -> None:
    jobs = [Calling(server, f"calling-{number}") for number in range(JOBS)]
    for job in jobs:
        job.goes_on()
    server.kill()
    server.start()
    for job in jobs:
        job.goes_on()
    server.kill_spawner()
    for job in jobs:
        job.goes_on()
    server.kill()
    server.kill_spawner(may_have_left=True)
    server.start()
    jobs[0].kill_supervisor()  # its next attempt has another network
    for job in jobs:
        job.goes_on()
    server.terminate()
    server.start()
    for number, job in enumerate(jobs):
        job.goes_on()
        job.end(2 if number == 0 else 1)
    assert invariants.left_behind(server) == []
    eventually(lambda: offers(server) == [], "no socket is offered any more")


def test_a_job_that_is_paused_calls_again_when_it_is_resumed(server: RealServer) -> None:
    job = Calling(server, "calling-paused")
    job.goes_on()
    job.handle.pause()
    job.handle.wait_until_paused(60)
    eventually(lambda: offers(server) == [], "its socket is gone")
    job.handle.resume()
    job.goes_on()
    job.end(2)


def test_when_files_run_out_jobs_call_again_as_soon_as_there_are_some(server: RealServer) -> None:
    """The server looked for sockets once, could not, and looked no more."""
    job = Calling(server, "calling-files")
    job.goes_on()
    assert server.process is not None
    pid, kind, looks = server.process.pid, resource.RLIMIT_NOFILE, "sockets of jobs cannot be"
    before = resource.prlimit(pid, kind)
    resource.prlimit(pid, kind, (3, before[1]))
    draft, name = (server.ledger.listeners / name for name in (".draft", "1.nobody.1.1"))
    draft.touch()
    draft.rename(name)
    eventually(lambda: looks in server.log(), "the server has looked")
    resource.prlimit(pid, kind, before)
    name.unlink(missing_ok=True)
    job.goes_on()
    other = Calling(server, "calling-after-files")
    other.goes_on()
    job.end()
    other.end()
