"""From nothing to a finished job: what somebody sees who has just installed the product."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from support.environments import EXAMPLES
from support.server import RealServer


def test_the_first_start_writes_credentials_and_settings_so_that_the_cli_works_at_once(
    server: RealServer,
) -> None:
    written = server.data / "credentials.json"
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    assert server.credentials.keys() == {"endpoint", "access_key", "secret_key"}
    assert any(str(written) in line for line in server.announced)

    settings = server.home / ".config" / "cloudml" / "config.json"
    assert stat.S_IMODE(settings.stat().st_mode) == 0o600
    ran = server.cli("whoami", home=server.home).good()
    assert server.endpoint in ran.out
    assert "admin" in ran.out


@pytest.mark.slow
def test_somebody_with_another_servers_key_is_told_the_way(
    serve: Callable[..., RealServer],
) -> None:
    server = serve()
    assert not any("another key" in line for line in server.announced)
    settings = server.home / ".config" / "cloudml" / "config.json"
    settings.write_text(
        settings.read_text().replace(server.credentials["access_key"], "of-another-server")
    )
    server.terminate()
    server.start()
    (notice,) = [line for line in server.announced if "another key" in line]
    assert server.cli("whoami", home=server.home).code == 1
    server.cli(*notice.partition("cloudml ")[2].split(), home=server.home).good()
    server.cli("whoami", home=server.home).good()
    server.terminate()
    server.start()
    assert not any("another key" in line for line in server.announced)


def test_credentials_that_are_none_are_refused(server: RealServer, tmp_path: Path) -> None:
    (tmp_path / "odd.json").write_text('{"endpoint": "x"}')
    for file in ("odd.json", "missing.json"):
        ran = server.cli("config", "init", "--from", str(tmp_path / file))
        assert ran.code == 1
        assert "credentials.json in its data folder" in ran.err


def test_the_secret_is_neither_printed_nor_logged(server: RealServer) -> None:
    secret = server.credentials["secret_key"]
    shown = server.cli("config", "show", home=server.home).good()
    assert server.credentials["access_key"] in shown.out
    assert secret not in "\n".join([*server.announced, server.log(), shown.out, shown.err])


def test_a_job_submitted_and_watched(server: RealServer) -> None:
    ran = server.cli(
        "jobs",
        "submit",
        "first",
        "trainer.task",
        str(EXAMPLES / "plain"),
        "-W",
        "--",
        "--epochs",
        "3",
    ).good()
    assert "Hello from Python" in ran.out
    assert ran.out.splitlines()[-2:] == ["argument 1: --epochs", "argument 2: 3"]
    assert "first succeeded" in ran.err
