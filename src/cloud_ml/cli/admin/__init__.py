"""``cloudml admin``: organisations, users, keys, quotas and the audit log, for those who manage
them.
"""

from __future__ import annotations

import click

from cloud_ml.cli.lazy import Lazy, LazyGroup

_COMMANDS = {
    "orgs": Lazy("cloud_ml.cli.admin.orgs:orgs", "Organisations: list, create, disable, delete."),
    "users": Lazy("cloud_ml.cli.admin.users:users", "Users and their roles."),
    "keys": Lazy("cloud_ml.cli.admin.keys:keys", "Access keys: create, rotate, disable, revoke."),
    "quota": Lazy(
        "cloud_ml.cli.admin.quota:quota", "Quotas of organisations, and applications for more."
    ),
    "audit": Lazy("cloud_ml.cli.admin.audit:audit", "Show who did what, when and from where."),
}


@click.group(cls=LazyGroup, lazy=_COMMANDS)
def admin() -> None:
    """Manage organisations, users, keys and quotas."""
