"""``cloudml admin users``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cloud_ml.cli.display.output import (
    echo,
    echo_as,
    echo_facts,
    echo_table,
    local_time,
    output_option,
)
from cloud_ml.cli.lazy import LazyGroup
from cloud_ml.cli.options.deleting import confirm_deletion, yes_option
from cloud_ml.cli.session import Session, pass_session
from cloud_ml.models.admin.accounts import ROLES

if TYPE_CHECKING:
    from cloud_ml.models.admin.accounts import User

org_option = click.option(
    "--org", metavar="ORG", help="An organisation other than your own, for admins."
)
_role = click.Choice(ROLES)


@click.group(cls=LazyGroup)
def users() -> None:
    """Users and their roles: admin (of the platform), owner (of the organisation), member,
    viewer.
    """


@users.command("list")
@org_option
@output_option()
@pass_session
def list_users(session: Session, org: str | None, output: str | None) -> None:
    """List the users of an organisation."""
    found = session.client.admin.list_users(org=org)
    if not echo_as(output, found, (one.name for one in found)):
        rows = [
            (one.name, one.role, _state(one), one.mail, local_time(one.created_at)) for one in found
        ]
        echo_table(("NAME", "ROLE", "STATE", "MAIL", "CREATED"), rows)


@users.command()
@click.argument("name")
@org_option
@output_option()
@pass_session
def describe(session: Session, name: str, org: str | None, output: str | None) -> None:
    """Show a user."""
    _show(session.client.admin.describe_user(name, org=org), output)


@users.command()
@click.argument("name")
@click.option(
    "--role", type=_role, default="member", show_default=True, help="What the user may do."
)
@click.option("--mail", default="", metavar="ADDRESS", help="Whom to write to.")
@org_option
@output_option()
@pass_session
def create(
    session: Session, *, name: str, role: str, mail: str, org: str | None, output: str | None
) -> None:
    """Make a user. A key comes next: see `cloudml admin keys create`."""
    _show(session.client.admin.create_user(name, role=role, mail=mail, org=org), output)


@users.command()
@click.argument("name")
@click.option("--role", type=_role, help="What the user may do.")
@click.option("--mail", metavar="ADDRESS", help="Whom to write to.")
@org_option
@output_option()
@pass_session
def update(
    session: Session,
    *,
    name: str,
    role: str | None,
    mail: str | None,
    org: str | None,
    output: str | None,
) -> None:
    """Give a user another role or mail address."""
    if role is None and mail is None:
        raise click.UsageError("nothing to change: give --role or --mail")
    _show(session.client.admin.change_user(name, role=role, mail=mail, org=org), output)


@users.command()
@click.argument("name")
@org_option
@pass_session
def disable(session: Session, name: str, org: str | None) -> None:
    """Refuse every key of a user, everywhere within seconds. Its jobs run on."""
    echo(f"{session.client.admin.change_user(name, enabled=False, org=org).name} is disabled")
    _note_jobs(session, name, org)


@users.command()
@click.argument("name")
@org_option
@pass_session
def enable(session: Session, name: str, org: str | None) -> None:
    """Take the keys of a user again."""
    echo(f"{session.client.admin.change_user(name, enabled=True, org=org).name} is enabled")


@users.command()
@click.argument("name")
@org_option
@yes_option
@pass_session
def delete(session: Session, name: str, org: str | None, yes: bool) -> None:
    """Remove a user and its keys. Its jobs and objects stay with the organisation."""
    confirm_deletion([f"the user {name}"], "with all keys", yes=yes)
    echo(f"{session.client.admin.delete_user(name, org=org).name} is deleted")
    _note_jobs(session, name, org)


def _note_jobs(session: Session, name: str, org: str | None) -> None:
    """Say what of the user continues. Jobs of another organisation cannot be listed."""
    from cloud_ml.cli.admin.running_jobs import note_of_user

    if org is None:
        note_of_user(session.client, name)


def _show(user: User, output: str | None) -> None:
    if not echo_as(output, user, user.name):
        echo_facts(
            {
                "Name": user.name,
                "Organisation": user.org,
                "Role": user.role,
                "State": _state(user),
                "Mail": user.mail,
                "Created": local_time(user.created_at),
            }
        )


def _state(user: User) -> str:
    return "enabled" if user.enabled else "disabled"
