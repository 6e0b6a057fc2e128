"""How commands show quotas and applications for more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cloud_ml.cli.display.output import echo, echo_as, echo_table, local_time
from cloud_ml.models.common import format_memory

if TYPE_CHECKING:
    from cloud_ml.models.admin.quota import Application, OrgQuota, QuotaLine

_KINDS = {"train": "jobs", "model": "models"}
"""What a kind of ``/api/v1`` is called in commands."""


def show(quota: OrgQuota) -> None:
    """Print a quota as a table, used / limit."""
    echo_table(("KIND", "CPU", "MEMORY", "GPU", "COUNT"), [_row(line) for line in quota.items])
    if quota.storage_used is not None:
        echo(
            f"Storage: {_pair(_size(quota.storage_used), quota.storage_limit and _size(quota.storage_limit))}"
        )
    else:
        limit = "unlimited" if quota.storage_limit is None else _size(quota.storage_limit)
        echo(f"Storage limit: {limit}")
    echo(f"Points of metrics: {_pair(str(quota.points_used), quota.points_limit)}")


def _row(line: QuotaLine) -> tuple[str, ...]:
    return (
        _KINDS.get(line.kind, line.kind),
        _pair(f"{line.cpu_used:g}", None if line.cpu_limit is None else f"{line.cpu_limit:g}"),
        _pair(
            _size(line.memory_used), None if line.memory_limit is None else _size(line.memory_limit)
        ),
        _pair(str(line.gpu_used), None if line.gpu_limit is None else str(line.gpu_limit)),
        _pair(str(line.count_used), None if line.count_limit is None else str(line.count_limit)),
    )


def _pair(used: str, limit: str | int | None) -> str:
    return f"{used} / {'unlimited' if limit is None else limit}"


def _size(count: int) -> str:
    return format_memory(count) if count else "0"


def echo_applications(found: Sequence[Application], output: str | None) -> None:
    """Print applications in the form that was asked for."""
    if not echo_as(output, list(found), (one.id for one in found)):
        rows = [
            (
                one.id,
                one.org,
                one.user,
                one.service,
                "-" if one.cpu is None else f"{one.cpu:g}",
                "-" if one.memory is None else format_memory(one.memory),
                "-" if one.gpu is None else str(one.gpu),
                one.state,
                local_time(one.created_at),
            )
            for one in found
        ]
        echo_table(("ID", "ORG", "USER", "KIND", "CPU", "MEMORY", "GPU", "STATE", "CREATED"), rows)
