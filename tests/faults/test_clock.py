"""The machine's clock jumps a day forward and back below a server with jobs (libfaketime)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.errors import Unauthenticated
from cloud_ml.models.train_job import TrainJob
from support import invariants
from support.environments import pack
from support.server import RealServer, eventually, serving, trainer

LIBRARY = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)
DAY_S = 86_400

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.xdist_group("clock"),
    pytest.mark.skipif(LIBRARY is None, reason="libfaketime is not installed: apt-get install faketime"),
]


class Clock:
    """The server's, and its supervisors'; the monotonic one goes on as it does in a real jump."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.jump(0)

    def jump(self, seconds: int) -> None:
        """Be so far from the true time from now on."""
        draft = self._file.with_suffix(".new")
        draft.write_text(f"{seconds:+d}\n")
        draft.replace(self._file)


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Clock:
    return Clock(tmp_path_factory.mktemp("clock") / "offset")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, clock: Clock) -> Iterator[RealServer]:
    folder = tmp_path_factory.mktemp("clock-server")
    variables = {
        "LD_PRELOAD": LIBRARY,
        "FAKETIME_TIMESTAMP_FILE": clock._file,
        "FAKETIME_NO_CACHE": 1,
        "FAKETIME_DONT_FAKE_MONOTONIC": 1,
        "DONT_FAKE_MONOTONIC": 1,
        "CLOUDML_CONTROLLER_LEASE_TTL_S": 1,
    }
    with serving(folder, **variables) as server:
        file = pack(trainer(folder / "code", invariants.WITNESS), folder / "witness-1.0.tar.gz")
        server.client().storage.upload(file, "fds://cloudml/witness-1.0.tar.gz")
        yield server


def submit(client: CloudMlClient, name: str, *words: str, **fields: object) -> None:
    arguments = [f"fds://cloudml/{name}", *words]
    client.submit_train_job(
        TrainJob(name, "trainer.task", "fds://cloudml/witness-1.0.tar.gz", job_args=arguments, **fields)  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("days", [1, -1])
def test_jobs_leases_and_signatures_outlive_a_jump(days: int, server: RealServer, clock: Clock) -> None:
    """The command line here has the server's clock, as on one machine; the client of this process has the true one."""
    name = f"jump-{'forward' if days > 0 else 'back'}"
    client = server.client()
    submit(client, name, "wait", wall_time_limit="1h")
    submit(client, f"{name}-meanwhile", save_mode=True)
    try:
        eventually((server.bucket(name) / "runs").exists, "it runs", limit_s=60)
        clock.jump(days * DAY_S)
        with pytest.raises(Unauthenticated, match=r"86400 s .* the server's time"):
            client.describe_train_job(name)
        server.cli("jobs", "start", f"{name}-meanwhile").good()
        server.cli("jobs", "wait", f"{name}-meanwhile").good()
        job = server.cli("jobs", "describe", name, "-o", "json").good().json()
        assert (job["phase"], job["attempt"]) == ("Running", 1), "its time limit is measured, not read off a clock"
        (server.bucket(name) / "go").touch()
        server.cli("jobs", "wait", name).good()
    finally:
        clock.jump(0)
    for ended in (client.describe_train_job(name), client.describe_train_job(f"{name}-meanwhile")):
        assert (ended.phase, ended.attempt) == ("Succeeded", 1), ended.message
    assert invariants.log_incomplete(name, b"".join(client.train_job_logs(name)), [1], [1]) == []
    submit(client, f"{name}-after")
    assert client.get_train_job(f"{name}-after").wait(60).phase == "Succeeded"
    assert invariants.ran_twice(name, server.bucket(name)) == []
    assert invariants.left_behind(server) == []
