"""``cloudml whoami`` and ``cloudml org_id``."""

from __future__ import annotations

import click

from cloud_ml.cli.display.output import echo, echo_as, echo_facts, output_option
from cloud_ml.cli.session import Session, pass_session


@click.command()
@output_option()
@pass_session
def whoami(session: Session, output: str | None) -> None:
    """Show the current user, and the scopes of the token if one is used."""
    me = session.client.whoami()
    if echo_as(output, me, me.user):
        return
    echo_facts(
        {
            "Organisation": f"{me.org} ({me.org_id})",
            "User": me.user,
            "Role": me.role,
            **({} if me.scopes is None else {"Scopes": ", ".join(me.scopes) or "none"}),
            "Default bucket": me.default_bucket,
            "Server": session.client.endpoint,
        }
    )


@click.command("org_id")
@pass_session
def org_id(session: Session) -> None:
    """Print the number of your organisation."""
    echo(session.client.whoami().org_id)
