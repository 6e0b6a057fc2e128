from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest
from click.testing import CliRunner, Result

from cloud_ml.cli.main import cli
from support.fake_api import FakeApi
from support.fake_server import ACCESS_KEY, SECRET_KEY, FakeServer, serving


class Run(Protocol):
    def __call__(
        self, *arguments: str, text: str | None = None, env: dict[str, str | None] | None = None
    ) -> Result: ...


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def server(api: FakeApi) -> Iterator[FakeServer]:
    with serving(api) as fake:
        yield fake
    assert fake.bad_signatures == []


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    return tmp_path / "settings" / "config.json"


@pytest.fixture
def offline(settings: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs ``cloudml`` without a server, keys or settings."""
    for name in (
        "ENDPOINT",
        "ACCESS_KEY",
        "SECRET_KEY",
        "TOKEN",
        "CONTEXT",
        "DEBUG",
        "HDFS_KRB_PASSWORD",
    ):
        monkeypatch.delenv(f"CLOUDML_{name}", raising=False)
    monkeypatch.setenv("CLOUDML_CONFIG", str(settings))
    monkeypatch.setenv("TZ", "UTC")

    def run(
        *arguments: str, text: str | None = None, env: dict[str, str | None] | None = None
    ) -> Result:
        return CliRunner().invoke(cli, list(arguments), input=text, env=env)

    return run


@pytest.fixture
def run(offline: Run, server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs ``cloudml`` against the fake server."""
    monkeypatch.setenv("CLOUDML_ENDPOINT", server.endpoint)
    monkeypatch.setenv("CLOUDML_ACCESS_KEY", ACCESS_KEY)
    monkeypatch.setenv("CLOUDML_SECRET_KEY", SECRET_KEY)
    return offline
