"""``cloudml server unit``: what it prints, and what it warns of on standard error."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from unit.cli.conftest import Run


def test_a_user_and_a_file_that_are_not_here_are_named(offline: Run, tmp_path: Path) -> None:
    file = tmp_path / "nope.toml"
    result = offline("server", "unit", "--user", "nosuchuser", "--config", str(file))
    assert result.exit_code == 0
    assert "User=nosuchuser\n" in result.stdout
    assert "There is no user nosuchuser on this machine." in result.stderr
    assert f"There is no file {file}." in result.stderr
    assert "There is no" not in result.stdout


@pytest.mark.parametrize("user", [pwd.getpwuid(os.geteuid()).pw_name, str(os.geteuid())])
def test_what_is_here_is_not_spoken_of(offline: Run, tmp_path: Path, user: str) -> None:
    file = tmp_path / "server.toml"
    file.write_text("")
    assert offline("server", "unit", "--user", user, "--config", str(file)).stderr == ""
