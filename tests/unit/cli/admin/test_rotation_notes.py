"""What ``cloudml admin keys rotate`` says of the old key, and of the command line that uses it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cloud_ml.models.admin.accounts import AccessKey, NewAccessKey
from cloud_ml.sdk.admin.calls import Admin
from cloud_ml.sdk.config import Context, write_context
from support.fake_server import ACCESS_KEY, SECRET_KEY

if TYPE_CHECKING:
    from support.fake_server import FakeServer
    from unit.cli.conftest import Run

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def rotated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server makes the key AKNEW."""
    key = AccessKey(
        access_key="AKNEW",
        user="mei",
        org="default",
        role="member",
        enabled=True,
        usable=True,
        legacy_signatures=False,
        created_at=NOW,
    )

    def rotate(_: Admin, access_key: str, *, overlap_s: int | None = None) -> NewAccessKey:
        del access_key, overlap_s
        return NewAccessKey(key=key, secret_key="secret")

    monkeypatch.setattr(Admin, "rotate_key", rotate)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--overlap", "0"], "AKOLD has ended."),
        (["--overlap", "1h"], "AKOLD ends after the overlap"),
        ([], "AKOLD ends after the overlap"),
    ],
)
def test_a_key_ends_at_once_or_after_the_overlap(
    run: Run, options: list[str], sentence: str
) -> None:
    result = run("admin", "keys", "rotate", "AKOLD", *options)
    assert sentence in result.stderr
    assert "To go on" not in result.stderr


def test_the_key_of_the_variables(run: Run) -> None:
    result = run("admin", "keys", "rotate", ACCESS_KEY, "--overlap", "0")
    assert f"This command line uses {ACCESS_KEY}. To go on: set CLOUDML_ACCESS_KEY" in result.stderr


def test_the_key_of_the_current_context(offline: Run, settings: Path, server: FakeServer) -> None:
    write_context("lab", Context(server.endpoint, ACCESS_KEY, SECRET_KEY), path=settings)
    result = offline("admin", "keys", "rotate", ACCESS_KEY, "--overlap", "0")
    command = f"cloudml config init lab --endpoint {server.endpoint} --access-key AKNEW"
    assert f"To go on: {command}\n" in result.stderr
