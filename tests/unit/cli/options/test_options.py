"""Options with further names, options that the server refuses, and what is said about unknown
words.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click
import pytest

from cloud_ml.cli.jobs.options import NOT_OFFERED as JOB_OPTIONS_NOT_OFFERED
from cloud_ml.cli.jobs.options import given_fields
from cloud_ml.cli.jobs.submit import submit
from cloud_ml.cli.main import cli
from cloud_ml.cli.models.deploying import create, deploy
from cloud_ml.cli.models.options import NOT_OFFERED as SERVICE_OPTIONS_NOT_OFFERED
from cloud_ml.cli.suggestions import option_synonyms, synonyms
from cloud_ml.usecases.jobs import admission
from cloud_ml.usecases.models import service_checks

if TYPE_CHECKING:
    from unit.cli.conftest import Run


@pytest.mark.parametrize(
    ("command", "options", "refused"),
    [
        (submit, JOB_OPTIONS_NOT_OFFERED, admission.NOT_OFFERED),
        (create, SERVICE_OPTIONS_NOT_OFFERED, service_checks.NOT_OFFERED),
        (deploy, SERVICE_OPTIONS_NOT_OFFERED, service_checks.NOT_OFFERED),
    ],
)
def test_every_option_of_a_refused_field_is_known_as_such(
    command: click.Command, options: frozenset[str], refused: dict[str, str]
) -> None:
    names = {parameter.name for parameter in command.params}
    assert names & set(refused) <= options
    assert options <= names


def test_only_help_all_shows_what_the_server_refuses(offline: Run) -> None:
    for words in (
        ("jobs", "submit"),
        ("jobs", "rerun"),
        ("models", "deploy"),
        ("models", "create"),
    ):
        usual, full = offline(*words, "--help").stdout, offline(*words, "--help-all").stdout
        assert "--docker_image" not in usual
        assert "--help-all" in usual
        assert "--docker_image" in full
        assert full.startswith(f"Usage: cloudml {' '.join(words)}")


def test_an_option_that_is_not_offered_is_still_sent(offline: Run) -> None:
    result = offline("jobs", "submit", "a", "b.c", "fds://x/y", "-d", "image:1", "--dry-run")
    assert '"docker_image": "image:1"' in result.stdout


@pytest.mark.parametrize(
    "path", ["admin keys create", "token create", "models token", "storage presign"]
)
def test_how_long_a_credential_works_has_one_name(path: str) -> None:
    command = _command_of(f"cloudml {path}")
    (option,) = (one for one in command.params if "--expires" in one.opts)
    assert {"--for", "--ttl"} <= set(getattr(option, "aliases", ()))
    assert not any("--for" in one.opts for one in command.params)


def test_other_names_of_options_work_and_stay_out_of_help(offline: Run) -> None:
    result = offline(
        "jobs",
        "submit",
        "m.n",
        "fds://x/y",
        "--name",
        "a",
        "--cpus",
        "2",
        "--mem",
        "1G",
        "--dry-run",
    )
    assert '"cpu_limit": "2"' in result.stdout
    assert '"memory_limit": "1G"' in result.stdout
    assert "--cpus" not in offline("jobs", "submit", "--help").stdout
    assert given_fields({"cpu_limit": "2"}) == {"cpu_limit": "2"}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("jobs", "submit", ".", "--epochs", "3"),
            "there is no option --epochs. Put your script's arguments after",
        ),
        (("jobs", "submit", ".", "--memry_limit", "1G"), "; did you mean --memory_limit"),
        (("jobs", "submit", ".", "--docker_imag", "x"), "there is no option --docker-imag. Put"),
        (("jobs", "list", "--stat", "x"), "there is no option --stat; did you mean --state?"),
        (("jobs", "cancel", "--detach", "x"), "there is no option --detach\n"),
    ],
)
def test_meaning_comes_before_spelling_and_far_spellings_are_not_guessed(
    offline: Run, words: tuple[str, ...], sentence: str
) -> None:
    result = offline(*words)
    assert result.exit_code == 2
    assert sentence in result.stderr


def _command_of(path: str) -> click.Command:
    command: click.Command = cli
    context = click.Context(cli, info_name="cloudml")
    for name in path.split()[1:]:
        assert isinstance(command, click.Group)
        found = command.get_command(context, name)
        assert found is not None, path
        command = found
    return command


@pytest.mark.parametrize("path", synonyms.COMMANDS)
def test_words_stand_for_commands_that_exist_and_hide_none(path: str) -> None:
    group = _command_of(path)
    assert isinstance(group, click.Group)
    known = group.list_commands(click.Context(group))
    for word, meaning in synonyms.COMMANDS[path].items():
        assert word not in known
        names = [one for one in meaning.split() if not one.startswith("-") and not one.isdigit()]
        assert _command_of(" ".join([path, *names]))
    assert not set(synonyms.COMMAND_ADVICE.get(path, {})) & {*known, *synonyms.COMMANDS[path]}


@pytest.mark.parametrize("path", [*option_synonyms.OPTION_ADVICE, *option_synonyms.SAME_OPTIONS])
def test_advice_is_about_options_that_do_not_exist(path: str) -> None:
    command = _command_of(path)
    known = {name for one in command.params for name in [*one.opts, *getattr(one, "aliases", ())]}
    assert not known & set(option_synonyms.OPTION_ADVICE.get(path, {}))
    assert option_synonyms.SAME_OPTIONS.get(path, path) in option_synonyms.OPTION_ADVICE


def _advice() -> list[str]:
    tables = [*synonyms.COMMAND_ADVICE.values(), *option_synonyms.OPTION_ADVICE.values()]
    return sorted({text for table in tables for text in table.values()})


@pytest.mark.parametrize("text", _advice())
def test_advice_names_commands_that_exist(text: str) -> None:
    for line in re.findall(r"cloudml ((?:[a-z]+ ?)+)", text):
        command: click.Command = cli
        for name in line.split():
            if not isinstance(command, click.Group):
                break
            found = command.get_command(click.Context(command, info_name="cloudml"), name)
            assert found is not None or command is not cli, f"there is no command {name}"
            if found is None:
                break
            command = found
