"""``cloudml secret``: values that jobs get and that are never shown again."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from cloud_ml.cli.completion.candidates import files, secret_names
from cloud_ml.cli.display.output import (
    echo,
    echo_as,
    echo_facts,
    echo_table,
    is_person,
    local_time,
    note,
    output_option,
)
from cloud_ml.cli.lazy import LazyGroup
from cloud_ml.cli.options.base import Command, Option
from cloud_ml.cli.session import Session, pass_session
from cloud_ml.errors import AlreadyExists, InvalidRequest

if TYPE_CHECKING:
    from cloud_ml.models.secrets.secret import Secret

_LARGEST_FILE = 16 * 2**20
_SOURCES = "Give the value in a file, as standard input (-), or type it when you are asked."


@click.group(cls=LazyGroup)
def secret() -> None:
    """Values that jobs need and nobody else: passwords, tokens, keys."""


@secret.command("create", cls=Command)
@click.argument("name", required=False)
@click.argument("file", required=False, shell_complete=files)
@click.option(
    "-n",
    "--secret_name",
    cls=Option,
    aliases=("--name",),
    metavar="NAME",
    help="Name of the secret.",
)
@click.option(
    "-f", "--file_path", cls=Option, aliases=("--from-file", "--file"), metavar="FILE", shell_complete=files,
    help="File with the value; - reads standard input.",
)  # fmt: skip
@click.option(
    "--from-env-file", metavar="FILE", shell_complete=files,
    help="Create a secret for each line NAME=VALUE of a file.",
)  # fmt: skip
@click.option("--replace", is_flag=True, help="Replace the value of a secret that exists.")
@click.option("--from-literal", "--value", "literal", multiple=True, hidden=True)
@output_option()
@pass_session
def create(
    session: Session,
    *,
    name: str | None,
    file: str | None,
    secret_name: str | None,
    file_path: str | None,
    from_env_file: str | None,
    replace: bool,
    literal: tuple[str, ...],
    output: str | None,
) -> None:
    """Store a secret.

    \b
    cloudml secret create hf-token                 (asks for the value)
    cloudml secret create hf-token token.txt
    pass show hf | cloudml secret create hf-token -

    A job gets it with --secret hf-token as the file /run/secrets/hf-token, or with
    --secret hf-token=HF_TOKEN as the variable HF_TOKEN. The value is never shown again.
    """  # fmt: skip
    # A hidden option, so that the refusal can give the reason and another way.
    if literal:
        _refuse_argument(
            "A value on the command line can be seen by other users and stays in your shell's "
            "history."
        )
    # kubectl has a kind before the name.
    if name == "generic" and file and (file_path or from_env_file):
        name, file = file, None
    name, source = _name_and_source(name, file, secret_name, file_path)
    if from_env_file:
        if name or source:
            raise click.UsageError(
                "--from-env-file names the secrets after the variables: leave out NAME and FILE"
            )
        _create_all(session, from_env_file, replace=replace, output=output)
        return
    if not name:
        raise click.UsageError("missing: NAME. Usual is: cloudml secret create NAME FILE")
    if "=" in name:
        _refuse_argument("A value is not written behind the name: other users can see it there.")
    made = session.client.secrets.create(name, _read(name, source), replace=replace)
    if not echo_as(output, made, made.name):
        echo(f"the secret {made.name} is stored ({made.size} bytes)")
        note(f"Use it: cloudml jobs submit … --secret {made.name}={_variable(made.name)}")


def _name_and_source(
    name: str | None, file: str | None, named_option: str | None, file_option: str | None
) -> tuple[str | None, str | None]:
    """The name of a secret and the file with its value, each from an argument or an option.

    Raises:
        UsageError: One of them is given twice.
    """
    if named_option and name and not file:  # the only argument is the file
        name, file = None, name
    if (named_option and name) or (file and file_option):
        raise click.UsageError(
            "the name or the file is given twice; usual is: cloudml secret create NAME FILE"
        )
    return named_option or name, file or file_option


@secret.command("list")
@output_option()
@pass_session
def list_secrets(session: Session, output: str | None) -> None:
    """List secrets, never their values."""
    found = session.client.secrets.list()
    if not echo_as(output, found, (one.name for one in found)):
        rows = [
            (one.name, one.state, str(one.size), one.owner, local_time(one.created_at))
            for one in found
        ]
        echo_table(("NAME", "STATE", "BYTES", "OWNER", "CREATED"), rows)


@secret.command()
@click.argument("name", shell_complete=secret_names)
@output_option()
@pass_session
def describe(session: Session, name: str, output: str | None) -> None:
    """Show a secret, never its value."""
    found = session.client.secrets.describe(name)
    if not echo_as(output, found, found.name):
        echo_facts(_facts(found))
        if found.state == "Unreadable":
            note(
                "The server lacks the key that opens it: ask its operator, or create the "
                "secret again."
            )


@secret.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=secret_names)
@click.option(
    "-y",
    "--yes",
    "--force",
    is_flag=True,
    help="Do not ask about secrets that jobs or services use.",
)
@pass_session
def delete(session: Session, names: tuple[str, ...], yes: bool) -> None:
    """Delete secrets. Jobs that run keep their copy; attempts that start later fail.

    If jobs or model services use a secret, the command names them and asks.
    """
    for name in names:
        if not yes:
            _ask_about_users(name, session.client.secrets.describe(name).used_by or [])
    for name in names:
        echo(f"the secret {session.client.secrets.delete(name).name} is deleted")


def _ask_about_users(name: str, users: Sequence[str]) -> None:
    """Ask before a secret is deleted that somebody uses.

    Raises:
        InvalidRequest: It is used, and nobody can be asked.
    """
    if not users:
        return
    warning = (
        f"the secret {name} is used by {', '.join(users)}; "
        "attempts and replicas that start later will fail"
    )
    if not is_person():
        raise InvalidRequest(
            warning, field="name", value=name, allowed="a secret that is not in use, or --yes",
            hint="To give it a new value instead: cloudml secret create --replace.",
        )  # fmt: skip
    note(warning)
    click.confirm(f"Delete {name}?", abort=True, err=True)


def _facts(found: Secret) -> dict[str, str]:
    return {
        "Name": found.name,
        "State": found.state,
        "Size": f"{found.size} bytes",
        "Owner": found.owner,
        "Created": local_time(found.created_at),
        "Changed": local_time(found.updated_at),
        "Used by": ", ".join(found.used_by or ()) or "no unfinished job and no model service",
    }


def _create_all(session: Session, file: str, *, replace: bool, output: str | None) -> None:
    """Create a secret for each variable of a file: ``HF_TOKEN=…`` becomes ``hf-token``."""
    from cloud_ml.cli.jobs.env_files import read_env_file
    from cloud_ml.models import common

    variables = read_env_file(Path(file), {})
    names = {
        variable: common.check_name(variable, _secret_name(variable)) for variable in variables
    }
    _check_all(session, file, variables, names, replace=replace)
    made = [
        session.client.secrets.create(names[one], value, replace=replace)
        for one, value in variables.items()
    ]
    if not echo_as(output, made, (one.name for one in made)):
        for variable, one in zip(variables, made, strict=True):
            echo(f"the secret {one.name} is stored: --secret {one.name}={variable}")


def _check_all(
    session: Session,
    file: str,
    variables: Mapping[str, str],
    names: Mapping[str, str],
    *,
    replace: bool,
) -> None:
    """Refuse a file before the first of its secrets is stored.

    Raises:
        InvalidRequest: It has no variables, one without a value, or two for one secret.
        AlreadyExists: There are secrets of these names already.
    """
    if not variables or (
        empty := next((one for one, value in variables.items() if not value), None)
    ):
        what = f"{empty} has no value" if variables else "it has no variables"
        raise InvalidRequest(
            f"{file}: {what}", field="from-env-file", allowed="lines such as HF_TOKEN=VALUE"
        )
    if len(set(names.values())) < len(names):
        raise InvalidRequest(
            f"{file}: two variables would be one secret", field="from-env-file",
            allowed="variables that differ in more than upper and lower case",
        )  # fmt: skip
    there = (
        set()
        if replace
        else {one.name for one in session.client.secrets.list()} & set(names.values())
    )
    if there:
        raise AlreadyExists(
            f"these secrets exist already: {', '.join(sorted(there))}; nothing is stored",
            field="from-env-file",
            hint="To give them new values: --replace.",
        )


def _read(name: str, source: str | None) -> bytes:
    """The value of a secret: from a file, from standard input, or typed by a person.

    Raises:
        InvalidRequest: There is none.
    """
    if source is None and is_person():
        typed: str = click.prompt(f"Value of {name} (hidden)", hide_input=True, err=True)
        return typed.encode("utf-8", "surrogateescape")
    if source in (None, "-"):
        value = sys.stdin.buffer.read(_LARGEST_FILE + 1)
    else:
        assert source is not None
        value = _read_file(source)
    if not value:
        raise InvalidRequest(
            "the value is empty", field="file", allowed="1 byte or more", hint=_SOURCES
        )
    if len(value) > _LARGEST_FILE:
        raise InvalidRequest(
            "the file is too large for a secret", field="file", allowed=f"{_LARGEST_FILE} bytes"
        )
    return value


def _read_file(source: str) -> bytes:
    # kubectl writes --from-file=KEY=FILE
    path = next(
        (Path(one) for one in (source, source.partition("=")[2]) if one and Path(one).is_file()),
        None,
    )
    if path is None:
        if Path(source).exists() or "/" in source:
            raise InvalidRequest(
                f"{source} is not a file", field="file", allowed="a file that you can read"
            )
        _refuse_argument("There is no file of that name.")
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}", field="file") from error


def _refuse_argument(why: str) -> NoReturn:
    """Explain how a value is given. What was typed is not repeated: it may be the value."""
    raise click.UsageError(f"{why} {_SOURCES}")


def _secret_name(variable: str) -> str:
    return variable.strip("_").lower().replace("_", "-")


def _variable(name: str) -> str:
    return name.upper().replace("-", "_")
