"""From the words, pairs and dashes of a command line to the fields of a job."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from cloud_ml.cli.jobs.defaults import (
    check_module_in,
    looks_like_code,
    module_for,
    module_of_script,
    name_for,
)
from cloud_ml.cli.jobs.launchers import check_no_launcher, check_no_process_count
from cloud_ml.cli.options.base import Command, Option

F = TypeVar("F", bound=Callable[..., Any])
REQUIRED = ("job_name", "module_name", "trainer_uri")
_IN_THE_FOLDER = "or in the folder of the code: cloudml jobs submit ."
_BEHIND = "cloud_ml.cli.jobs.submit_arguments.behind"


class SubmitCommand(Command):
    """A command of which what stands behind ``--`` belongs to the user's script."""

    takes_script_arguments = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        before, after = (
            (args[: args.index("--")], args[args.index("--") + 1 :]) if "--" in args else (args, [])
        )
        try:
            self.check_words(before, after)
        except click.UsageError as error:
            error.ctx = ctx
            raise
        ctx.meta[_BEHIND] = after
        return super().parse_args(ctx, before)

    def check_words(self, before: list[str], after: list[str]) -> None:
        """Refuse what click would read wrongly."""


class LaunchCommand(SubmitCommand):
    """A command to which users of other platforms give their whole command line, such as
    ``mpirun -np 4 python train.py``.
    """

    def check_words(self, before: list[str], after: list[str]) -> None:
        watched = before[:1] == ["--watch"]
        command = "cloudml run" if watched else "cloudml jobs submit"
        words = before[1:] if watched else before
        # before click reads the options, which are the launcher's
        check_no_launcher(command, [*words, *(["--", *after] if after else [])])
        check_no_process_count(command, words)


def environment_options(command: F) -> F:
    """Add ``--env``, ``--env-file`` and ``--label`` to a command; see ``given_pairs``."""
    env = click.option(
        "-e",
        "--env",
        "environment",
        multiple=True,
        metavar="NAME=VALUE",
        help="Set an environment variable; NAME alone passes your value on.",
    )
    env_file = click.option(
        "--env-file",
        "environment_files",
        cls=Option,
        aliases=("--dotenv",),
        multiple=True,
        type=click.Path(path_type=Path),
        help="Set the variables of a file with a line NAME=VALUE for each; --env overrides them.",
    )
    label = click.option(
        "--label", "labels", multiple=True, metavar="KEY=VALUE", help="Set a label to find it by."
    )
    return env(env_file(label(command)))


def given_behind() -> list[str]:
    """What stands behind the ``--`` of a ``SubmitCommand``."""
    return list(click.get_current_context().meta.get(_BEHIND, ()))


def with_words(
    fields: dict[str, Any], words: Sequence[str], behind: Sequence[str] = ()
) -> dict[str, Any]:
    """``fields`` completed from what stands on the command line without an option.

    The first words are the name, the module and the URI, as far as these are missing; with fewer
    words than that, one that looks like code is the URI. A word alone is the URI if a file or
    folder has that name. The others, and what stands ``behind`` a ``--``, are the trainer's
    arguments.

    Raises:
        UsageError: There is no code, or arguments are given in two ways.
    """
    check_no_launcher("cloudml jobs submit", [*words, *behind])
    fields, given, words = dict(fields), words, list(words)
    missing = [name for name in REQUIRED if name not in fields]
    if missing[-1:] == ["trainer_uri"] and ends_with_code(words, len(missing)):
        fields["trainer_uri"] = words.pop()
    for name in REQUIRED:
        if name not in fields and words:
            fields[name] = words.pop(0)
    if "trainer_uri" not in fields:
        raise _without_code(fields, given)
    arguments = [*words, *behind]
    if arguments:
        if "job_args" in fields:
            raise click.UsageError(
                f"arguments are given twice: as job_args and as {' '.join(arguments)!r}"
            )
        fields["job_args"] = arguments
    return fields


def ends_with_code(words: Sequence[str], missing: int) -> bool:
    """Whether the last of fewer words than fields are ``missing`` is the trainer's URI."""
    if not words or len(words) >= missing:
        return False
    return looks_like_code(words[-1]) or (len(words) == 1 and Path(words[0]).exists())


def _without_code(fields: Mapping[str, Any], words: Sequence[str]) -> click.UsageError:
    if len(words) == 1 and words[0].endswith((".sh", ".ipynb")):
        return click.UsageError(
            f"there is no file {words[0]}, and jobs run Python: give a .py file"
        )
    missing = ", ".join(name for name in REQUIRED if name not in fields)
    path = next((word for word in words if Path(word).exists()), None)
    advice = (
        f"or for the code in {path}: cloudml jobs submit {shlex.quote('./' + path)}"
        if path
        else _IN_THE_FOLDER
    )
    return click.UsageError(
        f"missing: {missing}. Usual is: cloudml jobs submit NAME MODULE URI, {advice}"
    )


def with_defaults(fields: dict[str, Any]) -> dict[str, Any]:
    """``fields`` with the name and the module that the code suggests, where none is given.

    Raises:
        InvalidRequest: It suggests none, or several.
    """
    uri = fields.get("trainer_uri")
    if not isinstance(uri, str) or not uri:
        return fields  # refused by the job itself
    fields = dict(fields)
    if "module_name" not in fields:
        fields["module_name"] = module_for(uri)
    elif isinstance(fields["module_name"], str):
        fields["module_name"] = module_of_script(uri, fields["module_name"])
        check_module_in(uri, fields["module_name"])
    if "job_name" not in fields:
        fields["job_name"] = name_for(uri)
    return fields


def read_pairs(
    option: str, pairs: Sequence[str], surroundings: dict[str, str] | None = None
) -> dict[str, str]:
    """``NAME=VALUE`` texts as a mapping. With ``surroundings``, a name alone takes its value from
    there.

    Raises:
        UsageError: There is no '=', or no such variable to hand on.
    """
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            if surroundings is None:
                raise click.UsageError(f"{option} is {pair!r}; allowed is NAME=VALUE")
            if name not in surroundings:
                raise click.UsageError(
                    f"{option} is {pair!r}, but this shell has no exported variable of that name; "
                    "allowed is NAME=VALUE, or the NAME of one that is set"
                )
            value = surroundings[name]
        found[name] = value
    return found


def given_pairs(
    fields: dict[str, Any],
    environment: Sequence[str],
    labels: Sequence[str],
    environment_files: Sequence[Path] = (),
) -> dict[str, Any]:
    """The fields ``environment`` and ``labels``, with what the options add to those of ``fields``.

    Raises:
        UsageError: A pair is malformed.
        InvalidRequest: A file of variables cannot be read, or a line of it is malformed.
    """
    found: dict[str, Any] = {}
    variables: dict[str, str] = {}
    if environment_files:
        from cloud_ml.cli.jobs.env_files import read_env_file

        for path in environment_files:
            variables |= read_env_file(path, os.environ)
    variables |= read_pairs("--env", environment, dict(os.environ))
    if variables:
        found["environment"] = {**(fields.get("environment") or {}), **variables}
    if labels:
        found["labels"] = {**(fields.get("labels") or {}), **read_pairs("--label", labels)}
    return found
