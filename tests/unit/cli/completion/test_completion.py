"""What a shell offers on Tab."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from cloud_ml.cli.completion import candidates
from cloud_ml.cli.main import cli
from support.fake_api import FakeApi, make_job

if TYPE_CHECKING:
    from unit.cli.conftest import Run

Complete = Callable[..., list[str]]


@pytest.fixture
def complete(offline: Run) -> Complete:
    """The values that a shell is given for the last one of the words."""

    def ask(*words: str) -> list[str]:
        env = {
            "_CLOUDML_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(["cloudml", *words]),
            "COMP_CWORD": str(len(words)),
        }
        result = CliRunner().invoke(cli, [], prog_name="cloudml", env=env)
        assert result.stderr == ""
        return [line.partition(",")[2] for line in result.stdout.splitlines() if line]

    return ask


@pytest.fixture
def some_jobs(run: Run, api: FakeApi) -> None:
    api.jobs = {name: make_job(name) for name in ("linear", "linear-2", "other")}


def test_commands_and_options(complete: Complete) -> None:
    assert complete("jo") == ["jobs"]
    assert {"submit", "wait", "top", "list"} <= set(complete("jobs", ""))
    assert complete("jobs", "list", "--sta") == ["--state"]
    assert complete("jobs", "list", "--state", "failed,ru") == ["failed,running"]
    assert complete("completion", "") == ["bash", "zsh", "fish"]


@pytest.mark.usefixtures("some_jobs")
def test_names_come_from_the_server(complete: Complete) -> None:
    assert complete("jobs", "describe", "lin") == ["linear", "linear-2"]
    assert complete("jobs", "cancel", "linear", "lin") == ["linear-2"]
    assert complete("jobs", "submit", "-F", "p") == ["python"]


def test_contexts_come_from_the_settings(complete: Complete, settings: Path) -> None:
    settings.parent.mkdir()
    settings.write_text('{"current": "a", "contexts": {"a": {}, "ab": {}, "b": {}}}')
    assert complete("--context", "a") == complete("config", "use", "a") == ["a", "ab"]


def test_nothing_is_said_about_what_goes_wrong(
    complete: Complete, settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert complete("jobs", "describe", "x") == []
    settings.parent.mkdir()
    settings.write_text("{")
    assert complete("config", "use", "") == complete("jobs", "describe", "x") == []
    monkeypatch.setattr(candidates, "PATIENCE_S", 0.01)
    assert complete("--endpoint", "http://127.0.0.1:1", "jobs", "logs", "x") == []


def test_completing_commands_imports_none_of_them() -> None:
    code = "import sys; from cloud_ml.cli.main import cli; cli.main(prog_name='cloudml')"
    env = {"_CLOUDML_COMPLETE": "bash_complete", "COMP_WORDS": "cloudml se", "COMP_CWORD": "1"}
    command = [sys.executable, "-X", "importtime", "-c", code]
    done = subprocess.run(
        command,
        env={"PATH": os.environ["PATH"], **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["plain,secret", "plain,server"]
    assert "cloud_ml.cli.storage.group" not in done.stderr
    assert "cloud_ml.cli.guard" in done.stderr


@pytest.mark.parametrize(
    ("shell", "words"), [("bash", "complete -o"), ("zsh", "#compdef"), ("fish", "complete --")]
)
def test_a_script_for_each_shell(offline: Run, shell: str, words: str) -> None:
    result = offline("completion", shell)
    assert (result.exit_code, result.stderr) == (0, "")
    assert words in result.stdout
    assert offline("completion", "tcsh").exit_code == 2


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_in_a_real_shell(offline: Run) -> None:
    script = offline("completion", "bash").stdout
    ask = 'COMP_WORDS=(cloudml jobs l); COMP_CWORD=2; _cloudml_completion cloudml; echo "${COMPREPLY[@]}"'
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", script + ask],
        capture_output=True,
        text=True,
        env={"PATH": path},
        check=True,
    )
    assert done.stdout == "list logs\n"
