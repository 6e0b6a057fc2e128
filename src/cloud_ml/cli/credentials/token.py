"""``cloudml token``: access tokens for programs without the SDK."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from cloud_ml.cli.admin.keys import Duration
from cloud_ml.cli.admin.users import org_option
from cloud_ml.cli.display.output import (
    echo,
    echo_as,
    echo_facts,
    echo_table,
    local_time,
    note,
    output_option,
)
from cloud_ml.cli.lazy import LazyGroup
from cloud_ml.cli.options.base import EXPIRES_ALIASES, Option
from cloud_ml.cli.session import Session, pass_session

if TYPE_CHECKING:
    from cloud_ml.models.admin.access_tokens import AccessToken

_LONG_S = 365 * 24 * 3600
_POWERFUL = ("keys:write", "users:write", "orgs:write", "tokens:write")


@click.group(cls=LazyGroup)
def token() -> None:
    """Access tokens: for curl and programs without the SDK.

    A program sends it with every request: Authorization: Bearer TOKEN. The server keeps no copy of
    its text.
    """


@token.command()
@click.option(
    "--scope",
    "scopes",
    metavar="SCOPE[,SCOPE...]",
    multiple=True,
    help="What the token may do: jobs:read, jobs:write, models:predict[:NAME[/VERSION]]; also read "
    "and write of runs, models, storage, secrets, runtimes, quota, orgs, users, keys, tokens and audit. "
    "write includes read.",
)
@click.option(
    "--expires",
    "lasting",
    cls=Option,
    aliases=EXPIRES_ALIASES,
    type=Duration(),
    metavar="TIME",
    default="30d",
    show_default=True,
    help="How long it works: 12h, 30d; a number alone means seconds.",
)
@click.option(
    "--note",
    "remark",
    metavar="TEXT",
    default="",
    help="What the token is for; `token list` shows it.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask about a lifetime of a year or more.")
@output_option()
@pass_session
def create(
    session: Session,
    *,
    scopes: tuple[str, ...],
    lasting: int,
    remark: str,
    yes: bool,
    output: str | None,
) -> None:
    """Create a token and print it. It is shown only now."""
    scope_names = [one.strip() for text in scopes for one in text.split(",") if one.strip()]
    if not scope_names:
        raise click.UsageError(
            "--scope is missing; for example: cloudml token create --scope jobs:read"
        )
    if lasting >= _LONG_S and not yes:
        _ask_about_long_life(lasting)
    made = session.client.tokens.create(scope_names, expires_in_s=lasting, note=remark)
    if not echo_as(output, made, made.info.id):
        echo(made.token)
        note(
            f"Token {made.info.id} works until {local_time(made.info.expires_at)}: "
            f"{', '.join(made.info.scopes)}"
        )
        note(
            "Keep it secret; it is not shown again. End it with: cloudml token revoke "
            f"{made.info.id}"
        )
    if powerful := [scope for scope in made.info.scopes if scope in _POWERFUL]:
        note(
            f"{', '.join(powerful)} lets its holder create other credentials. Prefer a "
            "narrower scope."
        )


def _ask_about_long_life(seconds: int) -> None:
    days = seconds // 86400
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"the token would work for {days} days; add --yes, or choose less than a year "
            "with --expires"
        )
    click.confirm(f"The token will work for {days} days. Create it?", abort=True, err=True)


@token.command("list")
@click.option("--user", metavar="NAME", help="Only tokens of this user.")
@org_option
@output_option("wide")
@pass_session
def list_tokens(session: Session, user: str | None, org: str | None, output: str | None) -> None:
    """List tokens, without their texts. Ended tokens are listed for 7 more days."""
    found = session.client.tokens.list_tokens(user=user, org=org)
    if echo_as(output, found, (one.id for one in found)):
        return
    wide = output == "wide"
    rows = [
        (
            one.id,
            one.user,
            one.state,
            ",".join(one.scopes),
            local_time(one.created_at),
            local_time(one.expires_at),
            one.note,
            *((one.access_key,) if wide else ()),
        )
        for one in found
    ]
    header = (
        "TOKEN",
        "USER",
        "STATE",
        "SCOPES",
        "CREATED",
        "EXPIRES",
        "NOTE",
        *(("ACCESS KEY",) if wide else ()),
    )
    echo_table(header, rows)


@token.command()
@click.argument("token_id", metavar="TOKEN")
@output_option()
@pass_session
def describe(session: Session, token_id: str, output: str | None) -> None:
    """Show one token, without its text."""
    found = session.client.tokens.describe(id_of(token_id))
    if not echo_as(output, found, found.id):
        echo_facts(_facts(found))


@token.command()
@click.argument("tokens", nargs=-1, required=True, metavar="TOKEN...")
@pass_session
def revoke(session: Session, tokens: tuple[str, ...]) -> None:
    """End tokens at once, and the tokens that they created."""
    _revoke(session, tokens)


@token.command()
@click.argument("tokens", nargs=-1, required=True, metavar="TOKEN...")
@pass_session
def delete(session: Session, tokens: tuple[str, ...]) -> None:
    """End tokens at once: the same as `token revoke`."""
    _revoke(session, tokens)


def _revoke(session: Session, tokens: tuple[str, ...]) -> None:
    for text in tokens:
        echo(f"{session.client.tokens.revoke(id_of(text)).id} is revoked")


def id_of(text: str) -> str:
    """The id of a token that is named by its id or by its whole text, which must not travel in
    an address.
    """
    return text.split("_")[1] if text.startswith("cloudml_") and text.count("_") >= 1 else text


def _facts(found: AccessToken) -> dict[str, str]:
    facts = {
        "Token": found.id,
        "User": f"{found.user} of {found.org}",
        "Access key": found.access_key,
        "State": found.state,
        "Scopes": ", ".join(found.scopes),
        "Created": local_time(found.created_at),
        "Expires": local_time(found.expires_at),
    }
    if found.revoked_at is not None:
        facts["Revoked"] = local_time(found.revoked_at)
    return facts | ({"Note": found.note} if found.note else {})
