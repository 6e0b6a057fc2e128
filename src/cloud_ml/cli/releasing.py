"""``cloudml models promote`` and ``rollback``: what becomes of a candidate."""

from __future__ import annotations

import click

from cloud_ml.cli.completing import model_names, model_versions
from cloud_ml.cli.deploying import told
from cloud_ml.cli.model_names import named
from cloud_ml.cli.output import output_option
from cloud_ml.cli.session import Session, pass_session


@click.command()
@click.argument("name", shell_complete=model_names)
@click.argument("version", required=False, shell_complete=model_versions)
@click.option("-v", "--model_version", metavar="VERSION", help="The same as VERSION.")
@click.option("--release", type=click.IntRange(1), help="Only if this is the candidate; see `models describe`.")
@click.option("-W", "--watch", is_flag=True, help="Wait until it is rolled out.")
@output_option()
@pass_session
def promote(
    session: Session,
    name: str,
    version: str | None,
    *,
    model_version: str | None,
    release: int | None,
    watch: bool,
    output: str | None,
) -> int:
    """Serve the candidate from now on.

    Its replicas stay, and those of the release before go one after the other, as new ones answer. No call is lost.
    """
    where = named(session, name, version or model_version)
    if release is None:
        session.client.get_model_service(*where).promote()
    else:
        session.client.promote_model_service(*where, release=release)
    handle = session.client.get_model_service(*where)
    return told(handle, f"serves release {handle.service.release}", watch=watch, output=output)


@click.command()
@click.argument("name", shell_complete=model_names)
@click.argument("version", required=False, shell_complete=model_versions)
@click.option("-v", "--model_version", metavar="VERSION", help="The same as VERSION.")
@click.option("--release", type=click.IntRange(1), help="Only if this is the one that goes; see `models describe`.")
@click.option("-W", "--watch", is_flag=True, help="Wait until it is rolled out.")
@output_option()
@pass_session
def rollback(
    session: Session,
    name: str,
    version: str | None,
    *,
    model_version: str | None,
    release: int | None,
    watch: bool,
    output: str | None,
) -> int:
    """Drop the candidate: all calls go to what is served, at once.

    Where there is none, the release that was served before is served again, rolled out one replica after the other.
    How many replicas there are and who may call stays as it is.
    """
    where = named(session, name, version or model_version)
    if release is None:
        session.client.get_model_service(*where).rollback()
    else:
        session.client.rollback_model_service(*where, release=release)
    handle = session.client.get_model_service(*where)
    return told(handle, f"serves release {handle.service.release}", watch=watch, output=output)
