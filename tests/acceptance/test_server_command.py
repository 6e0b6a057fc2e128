"""``cloudml server`` where it cannot start, and where it must be careful."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from cloud_ml import data_folder, lock_file
from cloud_ml.client import CloudMlClient
from cloud_ml.models.jobs.train_job import TrainJob
from support.environments import EXAMPLES
from support.server import RealServer, eventually


@pytest.mark.parametrize(
    ("words", "variables", "expected"),
    [
        (["--host", "0.0.0.0"], {}, ["0.0.0.0", "TLS", "--tls-cert", "--behind-proxy"]),
        (["--host", "no-such-host.invalid"], {}, ["no-such-host.invalid"]),
        (["--host", "no-such.invalid", "--behind-proxy"], {}, ["this name has no address"]),
        (["--host", "192.0.2.1", "--behind-proxy"], {}, ["this machine does not have the address"]),
        (["--tls-cert", __file__], {}, ["--tls-cert", "--tls-key"]),
        (["--tls-cert", __file__, "--tls-key", __file__], {}, [__file__, "TLS", "PEM"]),
        (["--port", "70000"], {}, ["port", "70000", "65535"]),
        ([], {"CLOUDML_ENGINE_SANDBOX": "nne"}, ["engine.sandbox", "nne", "require"]),
        ([], {"CLOUDML_ENGINE_STOP_GRACE_S": "soon"}, ["stop_grace_s", "soon"]),
        ([], {"CLOUDML_BOOTSTRAP_ACCESS_KEY": "half"}, ["access key", "secret"]),
        (["--database-url", "oracle://nowhere"], {}, ["oracle"]),
    ],
    ids=lambda value: (
        " ".join(value).replace(__file__, "FILE") if isinstance(value, list) else None
    ),
)
def test_what_keeps_it_from_starting_is_told(
    server: RealServer,
    tmp_path: Path,
    words: list[str],
    variables: dict[str, str],
    expected: list[str],
) -> None:
    ran = server.cli(
        "server", "--port", "0", "--data-dir", str(tmp_path / "data"), *words, **variables
    )
    assert (ran.code, ran.out) == (1, ""), ran.err
    assert [word for word in expected if word.lower() not in ran.err.lower()] == [], ran.err
    assert "Traceback" not in ran.err
    assert "should not happen" not in ran.err


@pytest.mark.parametrize(
    ("words", "variables", "event"),
    [
        (["--host", "0.0.0.0"], {}, "0.0.0.0"),
        (["--port", "70000"], {}, "70000"),
        ([], {"CLOUDML_ENGINE_SANDBOX": "nne"}, "engine.sandbox"),
    ],
)
def test_with_json_logs_an_error_that_ends_it_is_json(
    server: RealServer, tmp_path: Path, words: list[str], variables: dict[str, str], event: str
) -> None:
    data = ["--data-dir", str(tmp_path / "data"), "--log-format", "json"]
    ran = server.cli("server", *words, *data, **{"CLOUDML_SERVER_PORT": "0", **variables})
    assert (ran.code, ran.out) == (1, "")
    lines = [json.loads(line) for line in ran.err.splitlines()]
    assert event in lines[-1]["event"]
    assert (lines[-1]["level"], lines[-1]["code"]) == ("error", "invalid")


def test_an_unknown_setting_in_the_file(server: RealServer, tmp_path: Path) -> None:
    file = tmp_path / "cloudml.toml"
    file.write_text('[engine]\nsandbx = "none"\n')
    ran = server.cli("server", "--data-dir", str(tmp_path / "data"), "--config", str(file))
    assert ran.code == 1
    assert "engine.sandbx is not a known field; did you mean sandbox?" in ran.err
    assert not (tmp_path / "data").exists()


def test_a_port_that_is_taken(server: RealServer, tmp_path: Path) -> None:
    ran = server.cli("server", "--port", str(server.port), "--data-dir", str(tmp_path / "data"))
    assert ran.code == 1
    assert f"cannot listen on 127.0.0.1:{server.port}: Address already in use" in ran.err
    assert "--port" in ran.err


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's folder takes root")
def test_another_users_folder_is_named_before_the_port_that_its_server_has(
    server: RealServer, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    os.close(data_folder.hold(data, for_server=True))
    os.chown(data / lock_file.NAME, 65_534, 65_534)
    ran = server.cli("server", "--port", str(server.port), "--data-dir", str(data))
    assert ran.code == 1
    assert f"the data folder {data} belongs to the user nobody" in ran.err
    assert "in use" not in ran.err


def test_a_data_folder_that_is_in_use(server: RealServer) -> None:
    assert server.process is not None
    ran = server.cli("server", "--port", "0", "--data-dir", str(server.data))
    assert ran.code == 1
    assert (
        f"another server (process {server.process.pid}) uses the data folder {server.data}"
        in ran.err
    )
    assert server.client().whoami().user == "admin", "and the one that runs is unharmed"


@pytest.mark.slow
def test_a_damaged_database_is_named_and_left_as_it_is(serve: Callable[..., RealServer]) -> None:
    server = serve()
    server.terminate()
    database = server.data / "state.db"
    whole = database.read_bytes()
    for content in (b"no database" * 1000, whole[:1000], None):
        if content is None:
            database.unlink()
        else:
            database.write_bytes(content)
        ran = server.cli("server", "--port", "0", "--data-dir", str(server.data))
        assert ran.code == 1
        assert str(database) in ran.err
        assert "(code: damaged)" in ran.err
        assert (database.read_bytes() if database.exists() else None) == content
    database.write_bytes(whole)
    assert server.start().client().whoami().user == "admin"


def test_everything_is_kept_over_a_restart(serve: Callable[..., RealServer]) -> None:
    server = serve()
    client = server.client()
    client.storage.upload(Path(__file__), "fds://cloudml/kept.txt")
    job = client.submit_train_job(TrainJob("kept", "trainer.task", str(EXAMPLES / "plain")))
    ended = job.wait(30)
    log = b"".join(job.logs())
    before = server.credentials
    server.terminate()
    server.start()
    assert server.credentials == before
    assert client.describe_train_job("kept") == ended
    assert b"".join(job.logs()) == log
    with client.storage.open("fds://cloudml/kept.txt") as chunks:
        assert b"".join(chunks) == Path(__file__).read_bytes()
    with contextlib.closing(
        sqlite3.connect(f"file:{server.data / 'state.db'}?mode=ro", uri=True)
    ) as database:
        assert database.execute("pragma integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_in_order_with_exit_code_0(
    serve: Callable[..., RealServer], number: signal.Signals
) -> None:
    server = serve()
    process = server.process
    assert process is not None
    process.send_signal(number)
    assert process.wait(60) == 0
    assert "Traceback" not in server.log()


def test_the_key_of_the_first_start_can_be_given(serve: Callable[..., RealServer]) -> None:
    server = serve(
        CLOUDML_BOOTSTRAP_ACCESS_KEY="given-key", CLOUDML_BOOTSTRAP_SECRET_KEY="given-secret"
    )
    assert server.credentials["access_key"] == "given-key"
    with CloudMlClient("given-key", "given-secret", server.endpoint) as client:
        assert client.whoami().role == "admin"


def test_jobs_run_without_any_fence_where_the_operator_says_so(
    serve: Callable[..., RealServer],
) -> None:
    server = serve(CLOUDML_ENGINE_SANDBOX="none", CLOUDML_ENGINE_CGROUPS="none")
    assert any("not sandboxed" in line for line in server.announced)
    ran = server.cli("jobs", "submit", "bare", "trainer.task", str(EXAMPLES / "plain"), "-W").good()
    assert "Hello from Python" in ran.out
    assert server.client().server_info().isolation["sandbox"] == "none"


def test_no_more_jobs_run_at_once_than_the_operator_allows(
    serve: Callable[..., RealServer], tmp_path: Path
) -> None:
    server = serve(CLOUDML_CONTROLLER_MAX_RUNNING_JOBS=1)
    client = server.client()
    code = tmp_path / "wait"
    code.mkdir()
    (code / "wait.py").write_text(
        "import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[1]).exists(): "
        "time.sleep(0.01)\n"
    )
    first, second = (
        client.submit_train_job(
            TrainJob(name, "wait", str(code), job_args=[f"fds://cloudml/{name}"])
        )
        for name in ("one", "two")
    )
    eventually(lambda: first.refresh().phase == "Running", "the first runs")
    assert second.refresh().phase == "Queued"
    server.bucket("one").touch()
    assert first.wait(30).succeeded
    eventually(lambda: second.refresh().phase == "Running", "then the second")
    server.bucket("two").touch()
    assert second.wait(30).succeeded
