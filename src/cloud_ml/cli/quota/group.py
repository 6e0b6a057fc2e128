"""``cloudml quota``: limits of the organisation, what is used of them, and applications for
more.
"""

from __future__ import annotations

import click

from cloud_ml.cli.display.output import echo, echo_as, note, output_option
from cloud_ml.cli.lazy import LazyGroup
from cloud_ml.cli.quota.options import amount_options, kind_option
from cloud_ml.cli.session import Session, pass_session
from cloud_ml.models.admin.quota import SERVICES


@click.group(cls=LazyGroup)
def quota() -> None:
    """Limits of your organisation, and what is used of them."""


@quota.command("list")
@output_option()
@pass_session
def list_quota(session: Session, output: str | None) -> None:
    """Show what is used and what is allowed: used / limit."""
    from cloud_ml.cli.quota.tables import show

    found = session.client.quota.show()
    if not echo_as(output, found, (one.org for one in found)):
        for one in found:
            show(one)


@quota.command()
@kind_option(*SERVICES)
@amount_options
@output_option()
@pass_session
def update(
    session: Session,
    *,
    kind: str,
    cpu: str | None,
    memory: str | None,
    gpu: str | None,
    output: str | None,
) -> None:
    """Apply for other limits. What is not given stays; nothing changes until an administrator
    approves.
    """
    if (cpu, memory, gpu) == (None, None, None):
        raise click.UsageError("nothing to apply for: give --cpu, --memory or --gpu")
    made = session.client.quota.apply(kind, cpu=cpu, memory=memory, gpu=gpu)
    if not echo_as(output, made, made.id):
        echo(f"application {made.id} is {made.state}")
        note("An administrator decides; `cloudml quota applications` shows the decision.")


@quota.command()
@output_option()
@pass_session
def applications(session: Session, output: str | None) -> None:
    """List applications and what became of them."""
    from cloud_ml.cli.quota.tables import echo_applications

    echo_applications(session.client.quota.applications(), output)
