"""What cannot be made again is deleted after a question, where somebody can be asked."""

from __future__ import annotations

import click
import pytest
from click import Command, Group
from click.testing import CliRunner

from cloud_ml.cli.main import cli
from cloud_ml.cli.options import deleting
from support.fake_api import FakeApi, make_job
from unit.cli.conftest import Run

LINES = (
    "admin orgs delete a",
    "admin users delete a",
    "config delete a",
    "hp delete a",
    "jobs delete a",
    "runs delete a",
)


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deleting, "is_person", lambda: True)


def _command(words: list[str]) -> Command:
    group: Command = cli
    for word in words:
        assert isinstance(group, Group)
        found = group.get_command(group.make_context("cloudml", [], resilient_parsing=True), word)
        assert found is not None
        group = found
    return group


@pytest.mark.parametrize("line", LINES)
def test_every_such_command_has_yes(line: str) -> None:
    command = _command(line.split()[:-1])
    assert "--yes" in {name for one in command.params for name in one.opts}


def test_a_job_is_deleted_after_a_question(run: Run, api: FakeApi, person: None) -> None:
    api.jobs = {"a": make_job("a", phase="Failed")}
    kept = run("jobs", "delete", "a", text="n\n")
    assert (kept.exit_code, kept.stdout) == (1, "")
    assert "Delete a with logs and outputs? [y/N]" in kept.stderr
    assert "Nothing is deleted." in kept.stderr
    assert run("jobs", "delete", "a", text="y\n").stdout == "a is being deleted\n"


def test_yes_and_rm_do_not_ask_again(run: Run, api: FakeApi, person: None) -> None:
    api.jobs = {"a": make_job("a", phase="Failed"), "b": make_job("b", phase="Failed")}
    assert run("jobs", "delete", "a", "--yes").stdout == "a is being deleted\n"
    assert run("jobs", "rm", "b").stdout == "b is being deleted\n"


def test_a_script_is_not_asked(run: Run, api: FakeApi) -> None:
    api.jobs = {"a": make_job("a", phase="Failed")}
    assert run("jobs", "delete", "a").exit_code == 0


@pytest.mark.parametrize(("count", "shown"), [(1, "n0"), (6, "n0, n1, n2, n3, n4 and 1 more")])
def test_the_question_names_some(count: int, shown: str, person: None) -> None:
    @click.command()
    def ask() -> None:
        deleting.confirm_deletion([f"n{n}" for n in range(count)], "with all", yes=False)

    assert f"Delete {shown} with all? [y/N]" in CliRunner().invoke(ask, input="y\n").output
