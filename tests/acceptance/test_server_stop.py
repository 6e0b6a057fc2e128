"""``cloudml server stop``: two servers on one machine, and what each of them leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cloud_ml.engines.local.cleanup.owners import instance_of
from cloud_ml.engines.local.network import pins
from cloud_ml.models.jobs.train_job import TrainJob
from support.server import Ran, RealServer, eventually, trainer

pytestmark = pytest.mark.xdist_group("networks")
_WAIT = "import signal, time\nprint('runs', flush=True)\ntime.sleep(3600)\n"


def _stop(server: RealServer, *words: str) -> Ran:
    return server.cli("server", "stop", "--data-dir", str(server.data), *words, timeout_s=90)


def _started(server: RealServer, code: Path, name: str) -> str:
    """A job that runs; its uid."""
    handle = server.client().submit_train_job(
        TrainJob(name, "trainer.task", str(code), max_retries=1)
    )
    eventually(lambda: handle.refresh().phase == "Running", "the job runs", limit_s=60)
    (uid,) = {each.name.split(".")[0] for each in server.ledger.gates.iterdir()}
    return uid


def _machine(server: RealServer) -> list[str]:
    """Tables, networks and control groups of a server that the machine has."""
    instance = instance_of(str(server.data / "engine"))
    tables = subprocess.run(
        ["nft", "list", "tables"], capture_output=True, text=True, check=False
    ).stdout
    found = [f"table {instance}"] if f"cloudml-{instance}" in tables else []
    found += [str(path) for path in Path("/sys/fs/cgroup").rglob(f"cloudml-{instance}")]
    return found + ([str(pins.HOME / instance)] if (pins.HOME / instance).exists() else [])


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_stop_ends_one_server_and_with_everything_all_that_it_left(
    serve: Callable[..., RealServer], tmp_path: Path
) -> None:
    server, other = serve(), serve()
    code = trainer(tmp_path / "code", _WAIT)
    uid, others = _started(server, code, "long"), _started(other, code, "other")

    _plain_stop_leaves_the_job(server, uid)
    ended = _stop(server, "--everything", "--yes", "--grace", "0").good().out
    assert "Ended: 1 job of users: default/long" in ended
    assert (server.processes_of(uid), _machine(server)) == ([], [])
    assert _stop(server, "--everything", "--yes").good().out == "Nothing of this server runs.\n"
    assert not list(server.data.rglob("*.sock"))
    assert other.processes_of(others), "another server's job runs on"

    server.start()
    handle = server.client().get_train_job("long")
    eventually(
        lambda: any("server stop --everything" in event.message for event in handle.events()),
        "the job says why",
    )
    eventually(lambda: server.processes_of(uid, 2), "and is tried again", limit_s=60)
    _everything_ends_also_after_all_of_it_was_killed(server, uid)
    assert other.client().get_train_job("other").refresh().phase == "Running"
    _a_server_that_hangs_is_killed_only_with_everything(other)
    assert (other.processes_of(others), _machine(other)) == ([], [])


def _plain_stop_leaves_the_job(server: RealServer, uid: str) -> None:
    left = server.processes_of(uid)
    assert server.process is not None
    pid = server.process.pid
    refused = _stop(server, "--everything")
    assert (refused.code, "--yes" in refused.err) == (1, True), refused.err
    assert server.process.poll() is None
    output = _stop(server).good().out
    assert f"The server (process {pid}) has stopped." in output
    assert "1 job of users: default/long" in output
    assert "the spawner" in output
    assert server.process.wait(10) == 0
    server.terminate()
    again = _stop(server).good().out
    assert f"No server runs on the data folder {server.data}." in again
    assert "default/long" in again
    assert server.processes_of(uid) == left, "the job runs on"


def _two_at_once(server: RealServer) -> str:
    """Two operators end everything: one does it, and the other finds nothing left."""
    words = ("--everything", "--yes", "--grace", "0")
    with ThreadPoolExecutor() as operators:
        both = [operators.submit(_stop, server, *words) for _ in range(2)]
        return "".join(each.result().good().out for each in both)


def _everything_ends_also_after_all_of_it_was_killed(server: RealServer, uid: str) -> None:
    server.kill()
    server.kill_spawner()
    with subprocess.Popen(["sleep", "3600"]) as stranger:
        try:  # as if both numbers were used again
            (server.data / "server.lock").write_text(str(stranger.pid))
            (server.data / "engine" / "spawner.lock").write_text(str(stranger.pid))
            output = _two_at_once(server)
            assert "Ended: 1 job of users: default/long" in output
            assert (server.processes_of(uid, 2), _machine(server)) == ([], [])
            assert stranger.poll() is None
        finally:
            stranger.kill()


def _a_server_that_hangs_is_killed_only_with_everything(server: RealServer) -> None:
    process = server.process
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    refused = _stop(server, "--timeout", "0.2")
    assert (refused.code, process.poll()) == (1, None)
    assert f"the server (process {process.pid}) has not ended within 0.2 s" in refused.err
    _stop(server, "--everything", "--yes", "--timeout", "0.2", "--grace", "0").good()
    assert process.wait(10) == -signal.SIGKILL


def test_a_folder_that_no_server_has_used(server: RealServer, tmp_path: Path) -> None:
    refused = server.cli("server", "stop", "--data-dir", str(tmp_path / "nowhere"))
    assert refused.code == 1
    assert f"no server has used the data folder {tmp_path / 'nowhere'}" in refused.err
    assert not (tmp_path / "nowhere").exists()
    words = server.cli("server", "stop", "--yes", "--data-dir", str(server.data))
    assert words.code == 2
    assert server.client().whoami().user == "admin", "and nothing was stopped"
