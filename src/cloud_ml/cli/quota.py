"""``cloudml quota``: limits of the organisation, what is used of them, and applications for more."""

from __future__ import annotations

import click

from cloud_ml.cli.lazy import LazyGroup
from cloud_ml.cli.output import echo, echo_as, note, output_option
from cloud_ml.cli.session import Session, pass_session
from cloud_ml.models.quota import SERVICES


@click.group(cls=LazyGroup)
def quota() -> None:
    """Limits of your organisation, and what is used of them."""


@quota.command("list")
@output_option()
@pass_session
def list_quota(session: Session, output: str | None) -> None:
    """Show what is used and what is allowed: used / limit."""
    from cloud_ml.cli.quota_tables import show

    found = session.client.quota.show()
    if not echo_as(output, found, (one.org for one in found)):
        for one in found:
            show(one)


@quota.command()
@click.option("-t", "--type", "service", type=click.Choice(SERVICES), required=True, help="What it is for.")
@click.option("-c", "--cpu_limit", required=True, metavar="CORES", help="Cores together, such as 16.")
@click.option("-M", "--memory_limit", required=True, metavar="SIZE", help="Memory together, such as 64G.")
@click.option("-g", "--gpu_limit", required=True, metavar="COUNT", help="GPUs together.")
@output_option()
@pass_session
def update(
    session: Session, *, service: str, cpu_limit: str, memory_limit: str, gpu_limit: str, output: str | None
) -> None:
    """Apply for other limits. Nothing changes until an administrator approves."""
    made = session.client.quota.apply(service, cpu=cpu_limit, memory=memory_limit, gpu=gpu_limit)
    if not echo_as(output, made, made.id):
        echo(f"application {made.id} is {made.state}")
        note("An administrator decides; `cloudml quota applications` tells.")


@quota.command()
@output_option()
@pass_session
def applications(session: Session, output: str | None) -> None:
    """List applications and what became of them."""
    from cloud_ml.cli.quota_tables import echo_applications

    echo_applications(session.client.quota.applications(), output)
