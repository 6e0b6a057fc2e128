"""A real server without descriptors, on a full disk, and on one that can only be read."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.errors import CloudMlError, OutOfSpace
from cloud_ml.models.jobs.train_job import TrainJob
from support import invariants
from support.environments import pack
from support.server import RealServer, eventually, serving, trainer

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("starving")]

DISK = 48 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """All that it keeps lies on a small disk: database, ledger, logs, objects."""
    folder = tmp_path_factory.mktemp("starving")
    data = folder / "data"
    data.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=711", "tmpfs", str(data)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a disk, and not on every machine")
    try:
        with serving(
            folder, CLOUDML_ENGINE_DISK_RESERVE="1M", CLOUDML_STORAGE_DISK_RESERVE="1M"
        ) as server:
            file = pack(trainer(folder / "code", invariants.WITNESS), folder / "witness-1.0.tar.gz")
            server.client().storage.upload(file, "fds://cloudml/witness-1.0.tar.gz")
            yield server
    finally:
        subprocess.run(["umount", "-l", str(data)], check=False, capture_output=True)


@pytest.fixture
def client(server: RealServer) -> Iterator[CloudMlClient]:
    key = server.credentials
    with CloudMlClient(key["access_key"], key["secret_key"], server.endpoint) as client:
        client._transport.sleep = lambda _: None
        yield client


def submit(server: RealServer, client: CloudMlClient, name: str, *words: str) -> Path:
    """Submit a job of the witness's; returns the folder that it writes to."""
    job = TrainJob(
        name,
        "trainer.task",
        "fds://cloudml/witness-1.0.tar.gz",
        job_args=[f"fds://cloudml/{name}", *words],
    )
    client.submit_train_job(job)
    return server.bucket(name)


def ran_well(client: CloudMlClient, name: str) -> None:
    job = client.get_train_job(name).wait(60)
    assert (job.phase, job.attempt) == ("Succeeded", 1), job.message
    assert invariants.log_incomplete(name, b"".join(client.train_job_logs(name)), [1], [1]) == []


# ---- the disk


def test_a_full_disk_refuses_work_answers_reads_and_recovers(
    server: RealServer, client: CloudMlClient
) -> None:
    place = submit(server, client, "before-full", "wait")
    eventually((place / "runs").exists, "a job runs")
    (place / "go").touch()  # there will be no room for it
    with full(server.data):
        with pytest.raises(OutOfSpace) as refused:
            for number in range(200):  # the log of the database may have room for some
                client.submit_train_job(
                    TrainJob(f"full-{number}", "trainer.task", "fds://cloudml/x.tar.gz")
                )
        assert "full or read-only" in refused.value.message
        with pytest.raises(OutOfSpace):
            client.storage.upload(os.urandom(1 << 20), "fds://cloudml/big")
        assert client.describe_train_job("before-full").name == "before-full"
        assert any(job.name == "before-full" for job in client.list_train_jobs())
        with client.storage.open("fds://cloudml/witness-1.0.tar.gz") as body:
            assert body.read()
    ran_well(client, "before-full")
    submit(server, client, "after-full")
    ran_well(client, "after-full")
    for job in list(client.list_train_jobs()):
        with contextlib.suppress(CloudMlError):
            client.get_train_job(job.name).delete()
    assert invariants.left_behind(server, mounted=1) == []


def test_a_server_that_is_killed_on_a_full_disk_starts_and_answers_reads(
    server: RealServer, client: CloudMlClient
) -> None:
    """It ended with an error that should not happen."""
    place = submit(server, client, "killed-full", "wait")
    eventually((place / "runs").exists, "a job runs")
    key = server.credentials
    with full(server.data):
        server.kill()
        server.start()
        assert client.describe_train_job("killed-full").name == "killed-full"
        assert server.credentials == key
    assert not list(server.data.glob("*.new"))
    client.storage.create_bucket("room-again")
    (place / "go").touch()
    ran_well(client, "killed-full")


@contextlib.contextmanager
def full(folder: Path) -> Iterator[None]:
    """No room at all for the length of a block."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    try:
        yield
    finally:
        ballast.unlink()


def test_a_disk_that_can_only_be_read_starts_nothing_and_says_why(
    server: RealServer, client: CloudMlClient
) -> None:
    server.terminate()
    server.kill_spawner(may_have_left=True)
    eventually(lambda: remount(server.data, "ro"), "nobody uses the disk any more")
    try:
        with pytest.raises(AssertionError, match=f"{server.data}[\\s\\S]*[Rr]ead-only"):
            server.start()
    finally:
        assert remount(server.data, "rw")
        server.start()
    assert client.whoami().role == "admin"


def remount(folder: Path, how: str) -> bool:
    command = ["mount", "-o", f"remount,{how}", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


# ---- descriptors


def test_without_descriptors_it_answers_or_refuses_and_recovers(
    server: RealServer, client: CloudMlClient
) -> None:
    assert server.process is not None
    pid = server.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208
    address = ("127.0.0.1", server.port)
    place = submit(server, client, "starving", "wait")
    eventually((place / "runs").exists, "a job runs")
    uid = client.describe_train_job("starving").uid
    written = len(server.log())
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 8, before[1]))
    try:
        with contextlib.ExitStack() as stack:
            for _ in range(40):
                stack.enter_context(socket.create_connection(address, timeout=60))
            eventually(
                lambda: len(os.listdir(f"/proc/{pid}/fd")) >= used + 8,  # noqa: PTH208
                "it has no descriptor left",
            )
            (place / "go").touch()
            eventually(
                lambda: server.observed(uid).state.over, "the job ends, and nobody can look at it"
            )
            assert server.process.poll() is None, server.log()[-6000:]
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    assert server.process.poll() is None, server.log()[-6000:]
    assert client.whoami().role == "admin"
    ran_well(client, "starving")
    assert (
        len(server.log()) - written < 200_000
    )  # a complaint for each try to accept would be megabytes
    submit(server, client, "after-starving")
    ran_well(client, "after-starving")
    assert server.process.poll() is None
