"""``cloudml admin keys``."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

import click

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
from cloud_ml.errors import InvalidRequest
from cloud_ml.models.common import check_duration, duration_seconds

if TYPE_CHECKING:
    from cloud_ml.models.admin.accounts import AccessKey, NewAccessKey

    _Type = click.ParamType[int]
else:
    _Type = click.ParamType


class Duration(_Type):
    """Such as ``90s``, ``30m``, ``12h``, ``7d``; the command gets seconds. ``0`` is no time at
    all.
    """

    name = "duration"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if str(value) == "0":
            return 0
        try:
            return duration_seconds(check_duration(param.name or "" if param else "", value))
        except InvalidRequest as error:
            self.fail(f"{value!r} is no duration; allowed is {error.allowed}", param, ctx)


@click.group(cls=LazyGroup)
def keys() -> None:
    """Access keys. Users manage their own keys, and owners those of the organisation."""


@keys.command("list")
@click.option("--user", metavar="NAME", help="Only keys of this user.")
@org_option
@output_option()
@pass_session
def list_keys(session: Session, user: str | None, org: str | None, output: str | None) -> None:
    """List keys, never their secrets."""
    found = session.client.admin.list_keys(user=user, org=org)
    if not echo_as(output, found, (one.access_key for one in found)):
        rows = [
            (
                one.access_key,
                one.user,
                one.role,
                _state(one),
                local_time(one.created_at),
                local_time(one.expires_at),
            )
            for one in found
        ]
        echo_table(("ACCESS KEY", "USER", "ROLE", "STATE", "CREATED", "EXPIRES"), rows)


@keys.command()
@click.argument("access_key")
@output_option()
@pass_session
def describe(session: Session, access_key: str, output: str | None) -> None:
    """Show a key, never its secret."""
    _show(session.client.admin.describe_key(access_key), output)


@keys.command()
@click.argument("user", default="")
@click.option(
    "--expires",
    cls=Option,
    aliases=EXPIRES_ALIASES,
    type=Duration(),
    metavar="TIME",
    help="How long it is good, such as 90d; else for ever. A number alone means seconds.",
)
@click.option("--legacy/--no-legacy", default=False, help="Accept signatures of the original "
                                                          "client, "
                                                          "which "
                                                          "needs "
                                                          "it. "
                                                          " "
              "[default: no]")  # fmt: skip
@click.option(
    "--fds/--no-fds", default=True, help="Accept signatures of FDS storage clients.  [default: yes]"
)
@org_option
@output_option()
@pass_session
def create(
    session: Session,
    *,
    user: str,
    expires: int | None,
    legacy: bool,
    fds: bool,
    org: str | None,
    output: str | None,
) -> None:
    """Create a key for USER, by default for yourself. Its secret is shown now and never again."""
    made = session.client.admin.create_key(
        user, expires_in_s=expires, legacy_signatures=legacy, fds_signatures=fds, org=org
    )
    _show_new(made, output)


@keys.command()
@click.argument("access_key")
@click.option(
    "--legacy/--no-legacy",
    default=None,
    help="Accept signatures of the original client, or refuse them.",
)
@click.option(
    "--fds/--no-fds", default=None, help="Accept signatures of FDS storage clients, or refuse them."
)
@output_option()
@pass_session
def update(
    session: Session, access_key: str, *, legacy: bool | None, fds: bool | None, output: str | None
) -> None:
    """Change which signatures a key accepts."""
    if legacy is None and fds is None:
        raise click.UsageError("nothing to change: add --legacy, --no-legacy, --fds or --no-fds")
    changed = session.client.admin.change_key(
        access_key, legacy_signatures=legacy, fds_signatures=fds
    )
    _show(changed, output)


@keys.command()
@click.argument("access_key")
@click.option(
    "--overlap",
    type=Duration(),
    metavar="TIME",
    help="How long the old key works on, such as 12h; 0 ends it now.",
)
@output_option()
@pass_session
def rotate(session: Session, access_key: str, overlap: int | None, output: str | None) -> None:
    """Replace a key by a new one. Both work until the overlap is over; the new secret is shown
    now only.
    """
    made = session.client.admin.rotate_key(access_key, overlap_s=overlap)
    _show_new(made, output)
    if output is None:
        note(
            f"{access_key} has ended."
            if overlap == 0
            else f"{access_key} ends after the overlap; `cloudml admin keys describe "
            f"{access_key}` says when."
        )
        _note_own_key(session, access_key, made.key.access_key)


@keys.command()
@click.argument("access_key")
@pass_session
def disable(session: Session, access_key: str) -> None:
    """Disable a key, on all servers within seconds."""
    echo(f"{session.client.admin.change_key(access_key, enabled=False).access_key} is disabled")


@keys.command()
@click.argument("access_key")
@pass_session
def enable(session: Session, access_key: str) -> None:
    """Enable a key again."""
    echo(f"{session.client.admin.change_key(access_key, enabled=True).access_key} is enabled")


@keys.command()
@click.argument("access_keys", nargs=-1, required=True, metavar="ACCESS_KEY...")
@pass_session
def revoke(session: Session, access_keys: tuple[str, ...]) -> None:
    """Delete keys permanently."""
    for access_key in access_keys:
        echo(f"{session.client.admin.revoke_key(access_key).access_key} is revoked")


def _note_own_key(session: Session, old: str, new: str) -> None:
    """Say how to go on where the ``old`` key is the one of this command."""
    from cloud_ml.sdk.config import Credentials, config_path, read_configuration, resolve

    used = resolve(endpoint=session.endpoint, context=session.context).credentials
    if not isinstance(used, Credentials) or used.access_key != old:
        return
    if not session.context and os.environ.get("CLOUDML_ACCESS_KEY") == old:
        advice = "set CLOUDML_ACCESS_KEY and CLOUDML_SECRET_KEY to the new key"
    else:
        name = session.context or os.environ.get("CLOUDML_CONTEXT")
        name = name or read_configuration(config_path()).current
        endpoint = shlex.quote(session.client.endpoint)
        advice = f"cloudml config init {name} --endpoint {endpoint} --access-key {new}"
    note(f"This command line uses {old}. To go on: {advice}")


def _show_new(made: NewAccessKey, output: str | None) -> None:
    if not echo_as(output, made, made.key.access_key):
        echo_facts(
            {"Access key": made.key.access_key, "Secret key": made.secret_key, **_facts(made.key)}
        )
        note("Keep the secret: it is not shown again.")


def _show(key: AccessKey, output: str | None) -> None:
    if not echo_as(output, key, key.access_key):
        echo_facts({"Access key": key.access_key, **_facts(key)})


def _facts(key: AccessKey) -> dict[str, str]:
    return {
        "User": f"{key.user} of {key.org}",
        "Role": key.role,
        "State": _state(key),
        "Original client": "accepted" if key.legacy_signatures else "refused",
        "FDS clients": "accepted" if key.fds_signatures else "refused",
        "Created": local_time(key.created_at),
        "Expires": local_time(key.expires_at),
    }


def _state(key: AccessKey) -> str:
    if not key.enabled:
        return "disabled"
    return "usable" if key.usable else "not usable"
