"""``cloudml config``: the contexts in the user's settings."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from cloud_ml.cli.completion.candidates import context_names
from cloud_ml.cli.display.output import echo, echo_as, echo_table, is_person, note, output_option
from cloud_ml.cli.lazy import LazyGroup
from cloud_ml.cli.options.deleting import confirm_deletion, yes_option
from cloud_ml.cli.session import Session, pass_session
from cloud_ml.errors import InvalidRequest

if TYPE_CHECKING:
    from cloud_ml.sdk.config import Context


_MASK = "******"
_TOKEN_FILE_LIMIT = 4096
"""Characters of a file that are read as a token: a wrong file shall not fill the memory."""
_VARIABLES = (
    "CLOUDML_CONTEXT",
    "CLOUDML_ENDPOINT",
    "CLOUDML_ACCESS_KEY",
    "CLOUDML_SECRET_KEY",
    "CLOUDML_TOKEN",
)


@click.group(cls=LazyGroup)
def config() -> None:
    """Servers, keys and tokens, kept in ~/.config/cloudml/config.json (or CLOUDML_CONFIG)."""


@config.command()
@click.argument("name", default="default")
@click.option(
    "--from", "file", metavar="FILE", help="Read all three from a server's credentials.json."
)
@click.option("--endpoint", metavar="URL", help="The server's address.")
@click.option("--access-key", metavar="KEY", help="Your access key.")
@click.option(
    "--secret-key",
    metavar="SECRET",
    help="Its secret. Others may see arguments: leave it out to be asked for it.",
)
@click.option(
    "--token-file",
    type=click.File(encoding="utf-8", lazy=False),
    metavar="FILE",
    help="Use the access token in this file instead of a key; - reads standard input.",
)
@click.option(
    "--check/--no-check", default=True, help="Check the key or token with the server (the default)."
)
@click.option("--use/--no-use", default=True, help="Make this the current context (the default).")
@pass_session
def init(
    session: Session,
    name: str,
    *,
    file: str | None,
    endpoint: str | None,
    access_key: str | None,
    secret_key: str | None,
    token_file: TextIO | None,
    check: bool,
    use: bool,
) -> None:
    """Create or change the context NAME.

    The command asks for what no option and no variable (CLOUDML_ENDPOINT, …) gives. A context has
    either a key or an access token (CLOUDML_TOKEN).
    """
    from cloud_ml.sdk.config import Context, config_path, read_configuration, write_context
    from cloud_ml.sdk.endpoint import DEFAULT_ENDPOINT, parse_endpoint

    before = read_configuration(config_path()).contexts.get(name, Context())
    if file is not None:
        given = _read_credentials(file)
        endpoint, access_key = endpoint or given["endpoint"], access_key or given["access_key"]
        secret_key = secret_key or given["secret_key"]
    endpoint = endpoint or session.endpoint or os.environ.get("CLOUDML_ENDPOINT")
    endpoint = endpoint or _ask(
        "Server", "--endpoint", "CLOUDML_ENDPOINT", default=before.endpoint or DEFAULT_ENDPOINT
    )
    parse_endpoint(endpoint)  # refused before anything else is asked for
    address = str(parse_endpoint(endpoint))
    token = _given_token(token_file, has_key=bool(access_key or secret_key))
    if token:
        context = Context(address, token=token)
    else:
        context = Context(address, *_ask_for_key(access_key, secret_key, before.access_key))
    if check:
        _check(context)
    path = write_context(name, context, make_current=use)
    echo(f'context "{name}" is in {path}')


def _given_token(token_file: TextIO | None, *, has_key: bool) -> str:
    """The token of a file or of the environment; empty if a key is to be used."""
    from cloud_ml.sdk.config import read_token

    if token_file is not None and has_key:
        raise click.UsageError("give either a key or --token-file: a context has one of them")
    if token_file is None and (has_key or os.environ.get("CLOUDML_ACCESS_KEY")):
        return ""
    text = (
        os.environ.get("CLOUDML_TOKEN", "")
        if token_file is None
        else token_file.read(_TOKEN_FILE_LIMIT)
    )
    return read_token(text).token if text or token_file is not None else ""


def _ask_for_key(access_key: str | None, secret_key: str | None, before: str) -> tuple[str, str]:
    """The key and its secret: as given, from the environment, or typed."""
    access_key = access_key or os.environ.get("CLOUDML_ACCESS_KEY")
    access_key = access_key or _ask(
        "Access key", "--access-key", "CLOUDML_ACCESS_KEY", default=before
    )
    secret_key = secret_key or os.environ.get("CLOUDML_SECRET_KEY")
    secret_key = secret_key or _ask("Secret key", "--secret-key", "CLOUDML_SECRET_KEY", hidden=True)
    return access_key, secret_key


@config.command()
@output_option()
def show(output: str | None) -> None:
    """Show all contexts and where they are kept. Secrets are never shown."""
    _show(output)


@config.command("list")
@output_option()
def list_contexts(output: str | None) -> None:
    """List the contexts (as `show` does)."""
    _show(output)


@config.command()
@click.argument("name", shell_complete=context_names)
def use(name: str) -> None:
    """Make NAME the current context."""
    _use(name)


@config.command("set_default")
@click.argument("name", shell_complete=context_names)
def set_default(name: str) -> None:
    """Make NAME the current context (the older word for `use`)."""
    _use(name)


@config.command("set")
@click.argument("setting", metavar="git")
@click.argument("value", metavar="on|off")
def set_value(setting: str, value: str) -> None:
    """Keep facts of git with your jobs (`git on`, the default), or nothing of it (`git off`).

    CLOUDML_NO_GIT goes before this, and --no-git before both.
    """
    if setting != "git":
        raise click.UsageError(
            f"there is no setting {setting!r} to set, only git; server and keys are those of a "
            "context: cloudml config init NAME"
        )
    if value not in ("on", "off"):
        raise click.UsageError(f"git is {value!r}; allowed is on or off")
    from cloud_ml.sdk.config import config_path, read_configuration, write_configuration

    path = config_path()
    write_configuration(replace(read_configuration(path), git=value == "on"), path)
    echo(f"{setting} is {value} in {path}")


@config.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=context_names)
@yes_option
def delete(names: tuple[str, ...], yes: bool) -> None:
    """Remove contexts, with the keys that they hold."""
    from cloud_ml.sdk.config import (
        choose_context,
        config_path,
        read_configuration,
        write_configuration,
    )

    path = config_path()
    before = read_configuration(path)
    for name in names:
        choose_context(before, name)
    confirm_deletion(names, "with the keys in this file", yes=yes)
    left = {name: one for name, one in before.contexts.items() if name not in names}
    current = before.current if before.current in left else next(iter(left), "default")
    write_configuration(replace(before, current=current, contexts=left), path)
    echo(f"removed {', '.join(names)}; the current context is {current if left else 'none'}")


def _show(output: str | None) -> None:
    from cloud_ml.sdk.config import config_path, read_configuration

    path = config_path()
    configuration = read_configuration(path)
    contexts = {name: _public_fields(one) for name, one in sorted(configuration.contexts.items())}
    document = {"file": str(path), "current": configuration.current, "contexts": contexts,
                "git": configuration.git}  # fmt: skip
    if echo_as(output, document, contexts):
        return
    note(f"settings: {path}")
    if not configuration.git:
        note("git: off. Jobs keep nothing of git.")
    rows = [
        (
            "*" if name == configuration.current else "",
            name,
            one["endpoint"],
            one["access_key"] or one["token"],
            one["secret_key"],
        )
        for name, one in contexts.items()
    ]
    if not rows:
        note("There is no context yet: run `cloudml config init`.")
        return
    echo_table(("", "NAME", "ENDPOINT", "ACCESS KEY OR TOKEN", "SECRET"), rows)
    overriding = [name for name in _VARIABLES if os.environ.get(name)]
    if overriding:
        note(
            f"{', '.join(overriding)} in the environment "
            f"{'goes' if len(overriding) == 1 else 'go'} before these."
        )


def _public_fields(context: Context) -> dict[str, str]:
    """The fields of a context without its secrets. Of a token, its id stays."""
    head, _, _ = context.token.rpartition("_")
    return {
        "endpoint": context.endpoint,
        "access_key": context.access_key,
        "secret_key": _MASK if context.secret_key else "",
        "token": f"{head}_{_MASK}" if context.token else "",
    }


def _use(name: str) -> None:
    from cloud_ml.sdk.config import (
        choose_context,
        config_path,
        read_configuration,
        write_configuration,
    )

    path = config_path()
    before = read_configuration(path)
    choose_context(before, name)
    write_configuration(replace(before, current=name), path)
    echo(f'the current context is "{name}"')


def _read_credentials(file: str) -> dict[str, str]:
    """What a server has written for its operator at its start.

    Raises:
        InvalidRequest: The file cannot be read, or is another.
    """
    names = ("endpoint", "access_key", "secret_key")
    try:
        document = json.loads(Path(file).read_text("utf-8"))
        return {name: str(document[name]) for name in names}
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise InvalidRequest(
            f"--from {file} cannot be used ({error}); allowed is a JSON file with "
            f"{', '.join(names)}",
            field="from",
            value=file,
            hint="A server writes one at its start: credentials.json in its data folder.",
        ) from error


def _ask(
    question: str, option: str, variable: str, *, default: str = "", hidden: bool = False
) -> str:

    try:
        answer: str = click.prompt(question, default=default or None, hide_input=hidden, err=True)
    except click.Abort:
        if is_person():
            raise
        note("")  # the question stands in the line
        raise click.UsageError(f"this is not a terminal: give {option} or set {variable}") from None
    return answer.strip()


def _check(context: Context) -> None:
    """Ask the server whom it takes the key or token for. A server that is not there is no reason
    not to save it.

    Raises:
        CloudMlError: The key or token is refused, or what answers is no server of ours.
    """
    from cloud_ml.client import CloudMlClient
    from cloud_ml.errors import NotFound, TransportError, Unauthenticated
    from cloud_ml.sdk.failures import NobodyThere

    try:
        with CloudMlClient(
            context.access_key, context.secret_key, context.endpoint, token=context.token
        ) as client:
            me = client.whoami()
    except NobodyThere as error:
        note(
            f"not checked: {error.message}\n  If the server is not just down, correct the "
            "endpoint: run this again."
        )
    except Unauthenticated as error:
        error.hint = f"Nothing is saved; {error.hint or 'look at the key'}".rstrip()
        raise
    except (NotFound, TransportError) as error:
        error.hint = f"Nothing is saved. Correct the endpoint, or save it unchecked with --no-check. {error.hint or ''}".rstrip()  # noqa: E501
        raise
    else:
        note(f"the server knows you as {me.user} of {me.org} ({me.role})")
