"""Options that take numbers: what is no number, or none that is allowed, is refused in one
sentence.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
import pytest

from cloud_ml.cli.main import cli
from cloud_ml.cli.options.numbers import Number, WholeNumber

if TYPE_CHECKING:
    from unit.cli.conftest import Run


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("hp submit x --target low", "--target is 'low'; allowed is a number"),
        ("hp submit x --target nan", "--target is 'nan'; allowed is a number"),
        ("hp submit x --parallel 1.5", "--parallel is '1.5'; allowed is a whole number"),
        ("jobs logs a -n x", "--lines is 'x'; allowed is a whole number, at least 0"),
        ("jobs logs a --attempt 0", "--attempt is '0'; allowed is a whole number, at least 1"),
        (
            "jobs submit a b fds://x/y --max_retries 101",
            "--retries is '101'; allowed is a whole number from 0 to 100",
        ),
        ("jobs top --every 0.5", "--every is '0.5'; allowed is a number from 1 to 3600"),
        ("server stop --grace inf", "--grace is 'inf'; allowed is a number from 0 to 86400"),
        ("models predict m -t 0", "--timeout is '0'; allowed is a number above 0"),
    ],
)
def test_a_wrong_number_is_told_with_its_option_and_what_is_allowed(
    offline: Run, words: str, sentence: str
) -> None:
    result = offline(*words.split())
    assert result.exit_code == 2
    assert result.stderr.splitlines()[0] == f"cloudml: {sentence}"
    assert "valid" not in result.stderr


def test_every_option_of_a_number_refuses_a_word_in_the_same_way(offline: Run) -> None:
    options = [
        (path, option)
        for path, command in _commands(cli, ())
        for option in command.params
        if isinstance(option.type, click.types.IntParamType | click.types.FloatParamType)
    ]
    assert len(options) > 40
    for path, option in options:
        assert isinstance(option.type, Number | WholeNumber), (path, option.name)
        name = max(option.opts, key=len)
        result = offline(*path, f"{name}=low")
        assert f"cloudml: {name} is 'low'; allowed is a" in result.stderr, (path, result.stderr)


def test_help_says_what_numbers_are_allowed(offline: Run) -> None:
    text = " ".join(offline("jobs", "top", "--help").stdout.split())
    assert "1<=x<=3600" in text
    text = " ".join(offline("hp", "submit", "--help").stdout.split())
    assert "--target FLOAT End when" in text
    assert "None" not in text


def _commands(
    group: click.Group, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _commands(command, (*path, name))
        else:
            yield (*path, name), command
