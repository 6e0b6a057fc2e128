"""``cloudml quota``: limits of the organisation, what is used of them, and applications for more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cloud_ml.cli.lazy import LazyGroup
from cloud_ml.cli.output import echo, echo_as, echo_table, note, output_option
from cloud_ml.cli.session import Session, pass_session
from cloud_ml.models.common import format_memory
from cloud_ml.models.quota import SERVICES

if TYPE_CHECKING:
    from cloud_ml.models.quota import OrgQuota, QuotaLine

_TITLES = {
    "train": "Train jobs",
    "model": "Model services",
    "dev": "Dev environments",
    "total": "All together",
}


@click.group(cls=LazyGroup)
def quota() -> None:
    """Limits of your organisation, and what is used of them."""


@quota.command("list")
@output_option()
@pass_session
def list_quota(session: Session, output: str | None) -> None:
    """Show what is used and what is allowed: used / limit."""
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
    from cloud_ml.cli.admin.quota import echo_applications

    echo_applications(session.client.quota.applications(), output)


def show(quota: OrgQuota) -> None:
    """Print a quota as a table, used / limit."""
    echo_table(("", "CPU", "MEMORY", "GPU", "COUNT"), [_row(line) for line in quota.items])
    if quota.storage_used is not None:
        echo(f"Storage: {_pair(_size(quota.storage_used), quota.storage_limit and _size(quota.storage_limit))}")


def _row(line: QuotaLine) -> tuple[str, ...]:
    return (
        _TITLES.get(line.kind, line.kind),
        _pair(f"{line.cpu_used:g}", None if line.cpu_limit is None else f"{line.cpu_limit:g}"),
        _pair(_size(line.memory_used), None if line.memory_limit is None else _size(line.memory_limit)),
        _pair(str(line.gpu_used), None if line.gpu_limit is None else str(line.gpu_limit)),
        _pair(str(line.count_used), None if line.count_limit is None else str(line.count_limit)),
    )


def _pair(used: str, limit: str | int | None) -> str:
    return f"{used} / {'unlimited' if limit is None else limit}"


def _size(count: int) -> str:
    return format_memory(count) if count else "0"
