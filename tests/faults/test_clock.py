"""The machine's clock jumps a day forward and back below a server with jobs (libfaketime)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.errors import Unauthenticated
from cloud_ml.models.jobs.train_job import TrainJob
from support import invariants
from support.server import RealServer, eventually, serving

LIBRARY = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)
DAY_S = 86_400
NAMES = {"jump-forward": DAY_S, "jump-back": -DAY_S}

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("clock"),
    pytest.mark.skipif(
        LIBRARY is None, reason="libfaketime is not installed: apt-get install faketime"
    ),
]


class Clock:
    """The server's; its monotonic one goes on, as it does in a real jump."""

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
    with serving(folder, CLOUDML_CONTROLLER_LEASE_TTL_S=1) as server:
        client = server.client()
        client.storage.upload(invariants.WITNESS.encode(), "fds://cloudml/witness.py")
        for name in NAMES:  # before the library is there: below it nothing can be started
            submit(client, name, "wait", wall_time_limit="1h")
            eventually((server.bucket(name) / "runs").exists, "it runs")
        server.kill()
        server._settings |= {
            "LD_PRELOAD": str(LIBRARY),
            "FAKETIME_TIMESTAMP_FILE": str(clock._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }
        yield server.start()


def submit(client: CloudMlClient, name: str, *words: str, **fields: object) -> None:
    arguments = [f"fds://cloudml/{name}", *words]
    client.submit_train_job(
        TrainJob(name, "witness", "fds://cloudml/witness.py", job_args=arguments, **fields)  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("name", NAMES)
def test_jobs_leases_and_signatures_outlive_a_jump(
    name: str, server: RealServer, clock: Clock
) -> None:
    """The command line here has the server's clock, as on one machine; the client of this
    process has the true one.
    """
    client = server.client()
    try:
        clock.jump(NAMES[name])
        with pytest.raises(Unauthenticated, match=r"86(399|40[01]) s .* the server's time"):
            client.describe_train_job(name)
        job = server.cli("jobs", "describe", name, "-o", "json").good().json()
        assert (job["phase"], job["attempt"]) == ("Running", 1), (
            "its time limit is measured, not read off a clock"
        )
        (server.bucket(name) / "go").touch()
        server.cli("jobs", "wait", name).good()
    finally:
        clock.jump(0)
    ended = client.describe_train_job(name)
    assert (ended.phase, ended.attempt) == ("Succeeded", 1), ended.message
    assert invariants.log_incomplete(name, b"".join(client.train_job_logs(name)), [1], [1]) == []
    assert invariants.ran_twice(name, server.bucket(name)) == []
