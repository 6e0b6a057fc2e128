"""``cloudml admin orgs``."""

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

if TYPE_CHECKING:
    from cloud_ml.models.admin.accounts import Organisation


@click.group(cls=LazyGroup)
def orgs() -> None:
    """Organisations: whatever there is belongs to one of them. Only an admin makes and changes
    them.
    """


@orgs.command("list")
@output_option()
@pass_session
def list_orgs(session: Session, output: str | None) -> None:
    """List organisations: all for an admin, else your own."""
    found = session.client.admin.list_orgs()
    if not echo_as(output, found, (one.name for one in found)):
        rows = [
            (
                one.name,
                one.org_id,
                _state(one),
                one.mail,
                one.default_bucket,
                local_time(one.created_at),
            )
            for one in found
        ]
        echo_table(("NAME", "ID", "STATE", "MAIL", "DEFAULT BUCKET", "CREATED"), rows)


@orgs.command()
@click.argument("name")
@output_option()
@pass_session
def describe(session: Session, name: str, output: str | None) -> None:
    """Show an organisation, by name or number."""
    _show(session.client.admin.describe_org(name), output)


@orgs.command()
@click.argument("name")
@click.option("--mail", default="", metavar="ADDRESS", help="Whom to write to.")
@click.option(
    "--bucket", default="", metavar="NAME", help="Its default bucket; otherwise one named after it."
)
@output_option()
@pass_session
def create(session: Session, name: str, mail: str, bucket: str, output: str | None) -> None:
    """Make an organisation and its default bucket. Its first user comes next: see
    `cloudml admin users create`.
    """
    _show(session.client.admin.create_org(name, mail=mail, default_bucket=bucket), output)


@orgs.command()
@click.argument("name")
@click.option("--mail", metavar="ADDRESS", help="Whom to write to.")
@click.option("--bucket", metavar="NAME", help="Its default bucket, one of its own.")
@output_option()
@pass_session
def update(
    session: Session, name: str, mail: str | None, bucket: str | None, output: str | None
) -> None:
    """Change the mail address or the default bucket of an organisation."""
    if mail is None and bucket is None:
        raise click.UsageError("nothing to change: give --mail or --bucket")
    _show(session.client.admin.change_org(name, mail=mail, default_bucket=bucket), output)


@orgs.command()
@click.argument("name")
@pass_session
def disable(session: Session, name: str) -> None:
    """Refuse every key of an organisation, everywhere within seconds. Its jobs run on."""
    from cloud_ml.cli.admin.running_jobs import note_of_organisation

    org = session.client.admin.change_org(name, enabled=False).name
    echo(f"{org} is disabled")
    note_of_organisation(session.client, org)


@orgs.command()
@click.argument("name")
@pass_session
def enable(session: Session, name: str) -> None:
    """Take the keys of an organisation again."""
    echo(f"{session.client.admin.change_org(name, enabled=True).name} is enabled")


@orgs.command()
@click.argument("name")
@yes_option
@pass_session
def delete(session: Session, name: str, yes: bool) -> None:
    """Remove an organisation that is disabled and has neither jobs nor objects.

    Its empty default bucket goes with it. Its name is never given again.
    """
    confirm_deletion([f"the organisation {name}"], "with its users and keys", yes=yes)
    echo(f"{session.client.admin.delete_org(name).name} is deleted")


def _show(org: Organisation, output: str | None) -> None:
    if not echo_as(output, org, org.name):
        echo_facts(
            {
                "Name": org.name,
                "Id": org.org_id,
                "State": _state(org),
                "Mail": org.mail,
                "Default bucket": org.default_bucket,
                "Created": local_time(org.created_at),
            }
        )


def _state(org: Organisation) -> str:
    return "enabled" if org.enabled else "disabled"
