"""Each kind of process of the platform is killed or stopped by itself, beside a job that runs."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from urllib.request import urlopen

import psutil
import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.controller.runtime.leader import LEASE
from cloud_ml.engines.gang import GangKey
from cloud_ml.models.jobs.job import Job
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.sdk.jobs.handles import JobHandle
from cloud_ml.state.sql.store import SqlStateStore
from faults.scenes import fragile, order, reached
from support import invariants
from support.environments import pack
from support.server import RealServer, eventually, trainer

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("deaths")]

LEASE_S = 1.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with fragile(
        tmp_path_factory.mktemp("deaths"), CLOUDML_CONTROLLER_LEASE_TTL_S=LEASE_S
    ) as server:
        folder = tmp_path_factory.mktemp("code")
        file = pack(trainer(folder, invariants.WITNESS), folder / "witness-1.0.tar.gz")
        server.client().storage.upload(file, "fds://cloudml/witness-1.0.tar.gz")
        yield server


@pytest.fixture
def client(server: RealServer) -> CloudMlClient:
    return server.client()


class Running:
    """A job of the witness's that has printed its lines and waits for ``go``."""

    def __init__(
        self, server: RealServer, client: CloudMlClient, name: str, max_retries: int = 1
    ) -> None:
        self.place = server.bucket(name)
        self._server = server
        job = TrainJob(
            name,
            "trainer.task",
            "fds://cloudml/witness-1.0.tar.gz",
            job_args=[f"fds://cloudml/{name}", "wait"],
            max_retries=max_retries,
        )
        self.handle: JobHandle = client.submit_train_job(job)
        self.is_up(1)

    def is_up(self, attempt: int) -> None:
        """Wait until the attempt has written that it runs, and printed its last line."""
        runs = self.place / "runs"
        eventually(
            lambda: runs.exists() and runs.read_text().split()[-1:] == [str(attempt)],
            "the attempt runs",
        )
        last = f"line {attempt} {invariants.LINES - 1}\n".encode()
        eventually(lambda: last in b"".join(self.handle.logs()), "it has printed its last line")

    @property
    def supervisor(self) -> int:
        gate = self._server.ledger.gate(GangKey(self.handle.uid, 1))
        assert gate is not None
        return gate.pid

    def go(self) -> Job:
        """Have it end, and see that it did so in order."""
        (self.place / "go").touch()
        job = self.handle.wait(60)
        attempts = range(1, job.attempt + 1)
        wrong = invariants.ran_twice(job.name, self.place)
        wrong += invariants.log_incomplete(
            job.name, b"".join(self.handle.logs()), attempts, attempts
        )
        assert wrong == []
        assert (job.phase, job.reason) == ("Succeeded", "Completed")
        return job


def bubblewraps(supervisor: int) -> list[psutil.Process]:
    """What runs below a supervisor, from the outside in."""
    return psutil.Process(supervisor).children(recursive=True)


# ---- killed


def test_the_spawner_alone(server: RealServer, client: CloudMlClient) -> None:
    job = Running(server, client, "spawner-dies")
    server.kill_spawner()
    after = Running(server, client, "after-the-spawner")  # which needs a new one
    assert after.go().attempt == 1
    assert job.go().attempt == 1
    assert invariants.left_behind(server) == []


def test_the_supervisor(server: RealServer, client: CloudMlClient) -> None:
    job = Running(server, client, "supervisor-dies")
    os.kill(job.supervisor, signal.SIGKILL)
    job.is_up(2)
    assert job.go().attempt == 2
    assert invariants.left_behind(server) == []


def test_without_retries_the_end_says_what_happened(
    server: RealServer, client: CloudMlClient
) -> None:
    job = Running(server, client, "supervisor-dies-once", max_retries=0)
    os.kill(job.supervisor, signal.SIGKILL)
    ended = job.handle.wait(60)
    assert (ended.phase, ended.reason) == ("Failed", "SupervisorLost")
    assert invariants.left_behind(server) == []


@pytest.mark.parametrize("which", ["outermost", "innermost"])
def test_a_process_of_the_job(which: str, server: RealServer, client: CloudMlClient) -> None:
    """The sandbox itself, or the user's code in it: the attempt ends, and the next one follows."""
    job = Running(server, client, f"{which}-dies")
    processes = bubblewraps(job.supervisor)
    victim = processes[0] if which == "outermost" else processes[-1]
    victim.kill()
    job.is_up(2)
    assert job.go().attempt == 2
    assert invariants.left_behind(server) == []


# ---- stopped


def test_a_server_that_stands_still_for_longer_than_its_lease(
    server: RealServer, client: CloudMlClient
) -> None:
    job = Running(server, client, "server-stands")
    assert server.process is not None
    server.process.send_signal(signal.SIGSTOP)
    (job.place / "go").touch()  # it ends meanwhile
    seen = eventually(lambda: over(server, job.handle.uid), "the job has ended")
    let_pass(3 * LEASE_S)
    server.process.send_signal(signal.SIGCONT)
    assert job.go().attempt == 1
    assert seen
    assert Running(server, client, "after-standing").go().attempt == 1


@contextmanager
def repeating(call: Callable[[], object], period_s: float) -> Iterator[None]:
    """Call it every ``period_s`` seconds while the block runs, in a thread."""
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(period_s):
            call()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def leads(server: RealServer) -> bool:
    """Whether the server says that its controller is the active one."""
    with urlopen(f"{server.endpoint}/metrics", timeout=10) as answer:
        return "\ncloudml_controller_leads 1" in answer.read().decode()


def test_a_lease_that_was_stolen_from_a_server_that_stood_still(
    server: RealServer, client: CloudMlClient
) -> None:
    """Between its commit and its action. It may still act or not; it commits nothing more, and when
    it leads again all is done once.
    """
    assert server.process is not None
    order(server, "controller.ensure.before", "stop")
    name, place = "stolen", server.bucket("stolen")
    handle = client.submit_train_job(
        TrainJob(
            name,
            "trainer.task",
            "fds://cloudml/witness-1.0.tar.gz",
            job_args=[f"fds://cloudml/{name}"],
        )
    )
    eventually(lambda: reached(server, "controller.ensure.before"), "it stands")
    with closing(SqlStateStore.open(f"sqlite:///{server.data}/state.db", create=False)) as store:

        def steal() -> object:
            return store.acquire_lease(LEASE, "a thief", ttl_s=LEASE_S, now=datetime.now(UTC))

        eventually(steal, "the lease has run out and is taken")
        with repeating(steal, LEASE_S / 5):  # as who leads does
            revision = store.revision()
            server.process.send_signal(signal.SIGCONT)
            eventually(lambda: not leads(server), "it knows that it leads no more")
            let_pass(3 * LEASE_S)
            assert not leads(server)
            assert store.revision() == revision, "and nothing is committed without the lease"
    job = handle.wait(60)
    assert (job.phase, job.attempt) == ("Succeeded", 1)
    assert invariants.ran_twice(name, place) == []
    assert invariants.left_behind(server) == []


def test_a_supervisor_that_stands_still(server: RealServer, client: CloudMlClient) -> None:
    """Its job fills the pipe and waits; nothing of what it said is lost."""
    name = "supervisor-stands"
    order(server, "supervisor.start.after", "stop")
    handle = client.submit_train_job(
        TrainJob(
            name,
            "trainer.task",
            "fds://cloudml/witness-1.0.tar.gz",
            job_args=[f"fds://cloudml/{name}"],
        )
    )
    supervisor = eventually(lambda: reached(server, "supervisor.start.after"), "it stands")
    eventually((server.bucket(name) / "runs").exists, "the code runs all the same")
    assert handle.refresh().phase in ("Starting", "Running")
    server.kill()
    server.start()
    assert handle.refresh().phase in ("Starting", "Running")
    os.kill(supervisor, signal.SIGCONT)
    job = handle.wait(60)
    assert (job.phase, job.attempt) == ("Succeeded", 1)
    assert invariants.log_incomplete(name, b"".join(handle.logs()), [1], [1]) == []


# ---- two at once


def test_a_second_server_on_the_same_folder_is_refused(
    server: RealServer, client: CloudMlClient
) -> None:
    assert server.process is not None
    second = server.cli("server", "--port", "0", "--data-dir", str(server.data), home=server.home)
    assert second.code != 0
    assert f"another server (process {server.process.pid}) uses the data folder" in second.err
    assert client.whoami().role == "admin"


def over(server: RealServer, uid: str) -> bool:
    seen = server.observed(uid)
    return seen is not None and seen.state.over


def let_pass(seconds: float) -> None:
    """Let a lease run out: it is the time itself that is tried here."""
    time.sleep(seconds)
