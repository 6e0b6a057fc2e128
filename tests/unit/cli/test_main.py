from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from cloud_ml import __version__
from cloud_ml.cli.lazy import Lazy, LazyGroup
from cloud_ml.cli.main import COMMANDS, cli
from support.fake_api import FakeApi, make_job
from support.fake_server import ACCESS_KEY, SECRET_KEY, FakeServer

if TYPE_CHECKING:
    from unit.cli.conftest import Run


def _is_written(lazy: Lazy) -> bool:
    return importlib.util.find_spec(lazy.target.partition(":")[0]) is not None


def _commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        if (
            isinstance(group, LazyGroup)
            and name in group.lazy
            and not _is_written(group.lazy[name])
        ):
            continue
        command = group.get_command(context, name)
        yield (*path, name)
        if isinstance(command, click.Group):
            yield from _commands(command, (*path, name))


@pytest.mark.parametrize("path", list(_commands(cli)), ids=" ".join)
def test_every_command_has_help(offline: Run, path: tuple[str, ...]) -> None:
    result = offline(*path, "--help")
    assert result.exit_code == 0, result.output
    assert f"Usage: cloudml {' '.join(path)}" in result.stdout
    assert "--help  " in result.stdout
    assert "...\n" not in result.stdout.partition("\n")[2], (
        "the first sentence of a command fits into a table"
    )
    assert "\\b" not in result.stdout, (
        "what keeps lines as they are is a backspace, and no two letters"
    )


def test_the_table_of_commands_says_what_the_commands_say(offline: Run) -> None:
    stdout = offline("--help").stdout
    for name, lazy in COMMANDS.items():
        assert (f"\n  {name} " in stdout) is not lazy.hidden
        assert len(lazy.help) <= 66, "one line on 80 columns"


def test_the_version(offline: Run) -> None:
    for option in ("-v", "--version"):
        assert offline(option).stdout == f"cloudml {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("jbs",), 'there is no command "jbs"; did you mean jobs?'),
        (("jobs", "submt"), 'there is no command "submt"; did you mean submit?'),
        (("aply",), "use: cloudml jobs submit -f FILE"),
        (("sumbit",), 'there is no command "sumbit"; did you mean jobs submit?'),
        (("dstack", "ps"), "leave out dstack; use: cloudml ps"),
        (("train",), "use: cloudml run FOLDER"),
        (("server", "start", "--data-dir", "x"), "use: cloudml server"),
        (("jobs", "xyzzy"), "there are cancel, checkpoints, clone, compare, cp, delete"),
        (("jobs", "list", "--stat", "x"), "--stat"),
        (("jobs", "list", "-o", "xml"), "'json'"),
        (("jobs", "describe"), "NAME"),
        (("--contxt", "a", "whoami"), "--context"),
    ],
)
def test_wrong_usage_says_what_would_be_right(
    offline: Run, arguments: tuple[str, ...], words: str
) -> None:
    result = offline(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("cloudml: ")
    assert words in result.stderr
    assert "(code: usage)" in result.stderr


def test_both_spellings_are_taken(run: Run, api: FakeApi) -> None:
    assert run("org-id").stdout == run("org_id").stdout == "1\n"
    arguments = ("--module-name", "trainer.task", "--trainer_uri", "fds://cloudml/a.whl")
    assert run("jobs", "submit", "--job_name", "a", *arguments, "--save-mode").exit_code == 0
    assert api.jobs["a"].phase == "Saved"


def test_errors_are_a_sentence_a_hint_and_a_code(run: Run, offline: Run) -> None:
    result = run("jobs", "describe", "none")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "cloudml: there is no job none (code: not_found)\n"
    result = offline("whoami", env={"CLOUDML_ACCESS_KEY": None, "CLOUDML_SECRET_KEY": None})
    assert result.exit_code == 1
    assert result.stderr.splitlines()[1].startswith("  Run `cloudml config init`")
    assert result.stderr.endswith("(code: invalid)\n")


def test_what_should_not_happen_is_no_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("cloud_ml.client.CloudMlClient.whoami", broken)
    result = run("whoami")
    assert result.exit_code == 1
    assert result.stderr.startswith(
        "cloudml: an error that should not happen: ZeroDivisionError: oh\n"
    )
    assert "(code: internal)" in result.stderr
    assert "Traceback" not in result.output


def test_the_debug_switch_shows_where_an_error_comes_from(run: Run) -> None:
    result = run("jobs", "describe", "none", env={"CLOUDML_DEBUG": "1"})
    assert type(result.exception).__name__ == "NotFound"


def test_the_endpoint_option_goes_before_everything(run: Run, server: FakeServer) -> None:
    env = {"CLOUDML_ENDPOINT": "http://127.0.0.1:1"}
    assert run("--endpoint", server.endpoint, "org_id", env=env).stdout == "1\n"


def test_a_missing_extra_is_named() -> None:
    group = LazyGroup("x", lazy={"y": Lazy("no_such_package:command", "", extra="server")})
    with pytest.raises(Exception, match="no_such_package") as caught:
        group.get_command(click.Context(group), "y")
    assert caught.value.hint == 'Install it with: pip install "cloud-ml[server]"'  # type: ignore[attr-defined]


def test_a_reader_that_goes_away_is_no_error_to_talk_about(
    server: FakeServer, api: FakeApi, tmp_path: Path
) -> None:
    api.jobs = {f"job-{i}": make_job(f"job-{i}") for i in range(2000)}
    environment = {
        "PATH": os.environ["PATH"],
        "CLOUDML_ENDPOINT": server.endpoint,
        "CLOUDML_ACCESS_KEY": ACCESS_KEY,
        "CLOUDML_SECRET_KEY": SECRET_KEY,
        "CLOUDML_CONFIG": str(tmp_path / "none"),
    }
    command = [
        sys.executable,
        "-c",
        "from cloud_ml.cli.main import main; main()",
        "jobs",
        "list",
        "--limit",
        "0",
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"NAME")
        process.stdout.close()
        output = process.stderr.read()
        assert process.wait(30) == 141
    assert output == b""
