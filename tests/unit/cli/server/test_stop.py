"""``cloudml server stop``: the command that it names ends what is left of the same server."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from cloud_ml import lock_file
from cloud_ml.shutdown import Shutdown, Survivors
from unit.cli.conftest import Run

_NAMED = "To end this, too: "


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder of a server whose spawner has outlived it."""
    data = tmp_path / "a data folder"
    data.mkdir()
    (data / lock_file.NAME).touch()
    monkeypatch.setattr(Shutdown, "survivors", lambda self: Survivors(spawner=4711))
    return data


def _named(output: str) -> list[str]:
    (line,) = [line for line in output.splitlines() if line.startswith(_NAMED)]
    return shlex.split(line.removeprefix(_NAMED))


@pytest.mark.parametrize("is_before", [False, True])
def test_the_data_folder_is_repeated(offline: Run, data: Path, is_before: bool) -> None:
    place = ["--data-dir", str(data)]
    words = ["server", *place, "stop"] if is_before else ["server", "stop", *place]
    shown = offline(*words)
    assert shown.exit_code == 0, shown.output
    assert _named(shown.output) == ["cloudml", "server", "stop", "--everything", *place]


def test_the_settings_are_repeated(offline: Run, data: Path, tmp_path: Path) -> None:
    settings = tmp_path / "server.toml"
    settings.write_text(f'[server]\ndata_dir = "{data}"\n')
    shown = offline("server", "stop", "--config", str(settings))
    assert shown.exit_code == 0, shown.output
    assert _named(shown.output)[4:] == ["--config", str(settings)]


def test_jobs_that_the_database_lacks_are_named_in_plain_words(
    offline: Run, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Shutdown, "survivors", lambda self: Survivors(unnamed=["ab12"]))
    shown = offline("server", "stop", "--data-dir", str(data))
    assert "1 job or replica without a readable record in the database: ab12" in shown.output
