"""``--org``: for administrators, of commands that look at jobs and end them."""

from __future__ import annotations

import click

from cloud_ml.cli.session import Session


def _take(ctx: click.Context, _: click.Parameter, org: str | None) -> None:
    if org is not None:
        ctx.ensure_object(Session).org = org


other_org_option = click.option(
    "--org",
    metavar="ORG",
    callback=_take,
    expose_value=False,
    help="Another organisation, for admins.",
)
