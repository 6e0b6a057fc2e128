"""``cloudml admin quota``."""

from __future__ import annotations

import click

from cloud_ml.cli.display.output import echo, echo_as, note, output_option
from cloud_ml.cli.lazy import LazyGroup
from cloud_ml.cli.quota.options import KINDS, WIRE_KINDS, amount_options, kind_option
from cloud_ml.cli.session import Session, pass_session
from cloud_ml.errors import InvalidRequest


@click.group(cls=LazyGroup)
def quota() -> None:
    """Quotas of organisations, and applications for more."""


@quota.command("list")
@click.argument("org", default="-1")
@output_option()
@pass_session
def list_quotas(session: Session, org: str, output: str | None) -> None:
    """Show quotas, used / limit, of ORG or of all organisations. Used storage is counted for one
    ORG only. Users who are not administrators have `cloudml quota list`.
    """
    from cloud_ml.cli.quota.tables import show

    found = session.client.quota.show(org=org)
    if not echo_as(output, found, (one.org for one in found)):
        for one in found:
            echo(f"{one.org} ({one.org_id})")
            show(one)
        if any(one.storage_used is None for one in found):
            note("Used storage is not counted here; see: cloudml admin quota list ORG")


@quota.command("set")
@click.argument("org")
@kind_option(*KINDS)
@amount_options
@click.option("-n", "--count", metavar="COUNT", help="So many at once.")
@click.option("--storage", metavar="SIZE", help="Bytes in all buckets together, such as 500G.")
@click.option("--points", metavar="COUNT", help="Points of metrics in all runs together.")
@output_option()
@pass_session
def set_quota(
    session: Session,
    *,
    org: str,
    kind: str,
    cpu: str | None,
    memory: str | None,
    gpu: str | None,
    count: str | None,
    storage: str | None,
    points: str | None,
    output: str | None,
) -> None:
    """Set limits of an organisation: amounts, `unlimited`, or `default`. What is not given
    stays.
    """
    from cloud_ml.cli.quota.tables import show
    from cloud_ml.models.admin.quota import LimitsChange

    if all(value is None for value in (cpu, memory, gpu, count, storage, points)):
        raise click.UsageError(
            "nothing to change: give --cpu, --memory, --gpu, --count, --storage or --points"
        )
    limits = LimitsChange(cpu=cpu, memory=memory, gpu=gpu, count=count)
    wire_kind = WIRE_KINDS[kind]
    try:
        changed = session.client.quota.set(
            org, **{wire_kind: limits}, storage=storage, points=points
        )
    except InvalidRequest as error:  # fields of the request have other names than options
        error.message = error.message.removeprefix(f"{wire_kind}.")
        raise
    if not echo_as(output, changed, changed.org):
        show(changed)


@quota.command()
@click.option("--org", metavar="ORG", help="Only those of this organisation.")
@output_option()
@pass_session
def applications(session: Session, org: str | None, output: str | None) -> None:
    """List applications for other limits, newest first."""
    from cloud_ml.cli.quota.tables import echo_applications

    echo_applications(session.client.quota.applications(org=org), output)


@quota.command()
@click.argument("application")
@pass_session
def approve(session: Session, application: str) -> None:
    """Set the limits that an application asks for."""
    decided = session.client.quota.approve(application)
    echo(f"application {decided.id} of {decided.org} is {decided.state}")


@quota.command()
@click.argument("application")
@pass_session
def decline(session: Session, application: str) -> None:
    """Turn an application down."""
    decided = session.client.quota.decline(application)
    echo(f"application {decided.id} of {decided.org} is {decided.state}")
