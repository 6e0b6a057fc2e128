from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloud_ml.environments import interpreter


def fake(folder: Path, name: str, version: str) -> None:
    """A program that answers as a Python of ``version``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\nprintf '{folder}\\n{version}'\n")
    (folder / name).chmod(0o755)


def test_every_interpreter_is_found_once_and_the_newest_release_counts(tmp_path: Path) -> None:
    fake(tmp_path / "a", "python3.77", "3.77.1")
    fake(tmp_path / "b", "python3.77", "3.77.5")
    fake(tmp_path / "b", "python3.78", "3.78.0")
    (tmp_path / "b" / "python3").symlink_to("python3.78")
    fake(tmp_path / "b", "python3.7", "3.7.17")
    fake(tmp_path / "b", "python3.79", "no version")
    (tmp_path / "b" / "python3.80").write_text("not to be run")
    found = interpreter.find_installed(
        tmp_path / "home", [tmp_path / "a", tmp_path / "b", tmp_path / "missing"]
    )
    mine = interpreter.own()
    assert list(found) == [mine.minor, "3.77", "3.78"]
    assert (found[mine.minor], found["3.77"].version) == (mine, "3.77.5")


def test_the_platforms_own_is_found_at_the_usual_places(tmp_path: Path) -> None:
    assert interpreter.own().minor in interpreter.find_installed(tmp_path)


def test_a_folder_of_somebody_else_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Path.glob

    def glob(folder: Path, pattern: str, **more: Any) -> Any:
        if folder == Path("/closed/versions"):
            raise PermissionError(13, "Permission denied", str(folder))
        return whole(folder, pattern, **more)

    monkeypatch.setattr(Path, "glob", glob)
    monkeypatch.setenv("PYENV_ROOT", "/closed")
    assert interpreter.own().minor in interpreter.find_installed(tmp_path)
