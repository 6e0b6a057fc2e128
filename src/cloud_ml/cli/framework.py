"""``cloudml framework``."""

from __future__ import annotations

import click

from cloud_ml.cli.lazy import LazyGroup
from cloud_ml.cli.output import echo_as, echo_table, output_option
from cloud_ml.cli.session import Session, pass_session


@click.group(cls=LazyGroup)
def framework() -> None:
    """The frameworks that jobs may ask for."""


@framework.command("list")
@output_option()
@pass_session
def list_frameworks(session: Session, output: str | None) -> None:
    """List frameworks and their versions, for -F and -V of `jobs submit`."""
    found = session.client.frameworks()
    if echo_as(output, found, sorted(found)):
        return
    echo_table(("FRAMEWORK", "VERSIONS"), [(name, ", ".join(versions)) for name, versions in sorted(found.items())])
