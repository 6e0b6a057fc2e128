"""``cloudml models promote`` and ``rollback``: what becomes of a candidate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from cloud_ml.cli.completion.candidates import model_names, model_versions
from cloud_ml.cli.display.output import output_option
from cloud_ml.cli.models.deploying import report_service
from cloud_ml.cli.models.names import find_name
from cloud_ml.cli.options.numbers import WholeNumber
from cloud_ml.cli.session import Session, pass_session
from cloud_ml.sdk.models.handles import ServiceHandle


def _deciding(release_is: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """The arguments and options of both commands."""
    parts = (
        click.argument("name", shell_complete=model_names),
        click.argument("version", required=False, shell_complete=model_versions),
        click.option("-v", "--model_version", metavar="VERSION", help="The same as VERSION."),
        click.option(
            "--release",
            type=WholeNumber(1),
            help=f"Only if this is {release_is}; see `models describe`.",
        ),
        click.option("-W", "--watch", is_flag=True, help="Wait until it is rolled out."),
        output_option(),
        pass_session,
    )

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        for part in reversed(parts):
            command = part(command)
        return command

    return decorate


@click.command()
@_deciding("the candidate")
def promote(
    session: Session, name: str, version: str | None, *, release: int | None, **options: Any
) -> int:
    """Serve the candidate from now on.

    Its replicas stay, and those of the release before go one after the other, as new ones answer.
    No call is lost.
    """
    where = find_name(session, name, version or options["model_version"])
    if release is None:
        session.client.get_model_service(*where).promote()
    else:
        session.client.promote_model_service(*where, release=release)
    return _report_release(session.client.get_model_service(*where), options)


@click.command()
@click.option(
    "--to", "--to-revision", type=WholeNumber(1), metavar="RELEASE",
    help="Serve this release; see `models describe`. Later ones are discarded.",
)  # fmt: skip
@_deciding("the one that goes")
def rollback(
    session: Session,
    name: str,
    version: str | None,
    *,
    release: int | None,
    to: int | None,
    **options: Any,
) -> int:
    """Drop the candidate: all calls go to what is served, at once.

    Where there is none, the release that was served before is served again, rolled out one replica
    after the other. How many replicas there are and who may call stays as it is.
    """
    where = find_name(session, name, version or options["model_version"])
    if release is not None and to is not None:
        raise click.UsageError("--to and --release exclude each other")
    if release is None:
        session.client.get_model_service(*where).rollback(to)
    else:
        session.client.rollback_model_service(*where, release=release)
    return _report_release(session.client.get_model_service(*where), options)


def _report_release(handle: ServiceHandle, options: dict[str, Any]) -> int:
    words = f"serves release {handle.service.release}"
    return report_service(handle, words, watch=options["watch"], output=options["output"])
