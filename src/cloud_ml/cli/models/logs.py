"""``cloudml models logs``: the output of one replica, or of all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from cloud_ml.cli.completion.candidates import model_names, model_versions
from cloud_ml.cli.display.output import note
from cloud_ml.cli.display.watching import NOTHING, print_log
from cloud_ml.cli.models.names import find_name
from cloud_ml.cli.options.base import Option
from cloud_ml.cli.options.numbers import WholeNumber
from cloud_ml.cli.session import Session, pass_session
from cloud_ml.errors import InvalidRequest

if TYPE_CHECKING:
    from cloud_ml.models.services.service import Service


@click.command()
@click.argument("name", shell_complete=model_names)
@click.argument("version", required=False, shell_complete=model_versions)
@click.option(
    "-f", "--follow", is_flag=True, help="Follow the output, also of new replicas. Ctrl-C stops it."
)
@click.option(
    "-n",
    "--lines",
    cls=Option,
    aliases=("--tail",),
    type=WholeNumber(0),
    help="Only this many last lines.",
)
@click.option(
    "--replica",
    type=WholeNumber(1),
    help="Number of a replica, also of an ended one; by default all current ones, one after the "
    "other.",
)
@click.option("--previous", is_flag=True, help="The replica that ended last.")
@click.option("--attempt", type=WholeNumber(1), help="Only this attempt, counted from 1.")
@click.option("-ri", "--replica_index", type=WholeNumber(0), help="Index of a replica, from 0.")
@click.option("--timestamps", is_flag=True, help="Print a time in UTC before each line.")
@click.option(
    "--no-installation",
    "installation",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Only the output of the model server, byte for byte: nothing of the installation.",
)
@click.option("-p", "--proxy", is_flag=True, hidden=True)
@pass_session
def logs(
    session: Session,
    name: str,
    version: str | None,
    *,
    follow: bool,
    lines: int | None,
    replica: int | None,
    previous: bool,
    attempt: int | None,
    replica_index: int | None,
    timestamps: bool,
    installation: bool,
    proxy: bool,
) -> int:
    """Print the output of replicas, as they wrote it.

    The output of the last few ended replicas is kept; models describe lists them. With --follow,
    the output continues while the service runs. With --replica, it ends with that replica.
    """
    if proxy:
        raise click.UsageError("--proxy is not offered: replicas have no proxy of their own")
    if sum((replica is not None, previous, replica_index is not None)) > 1:
        raise click.UsageError("--replica, --previous and --replica_index exclude each other")
    handle = session.client.get_model_service(*find_name(session, name, version))
    of_all = (replica, replica_index, attempt) == (None, None, None) and not previous
    if follow and of_all and (handle.service.replicas or not handle.service.settled):
        from cloud_ml.cli.models.following import Following

        return Following(handle, lines, installation=installation, timestamps=timestamps).run()
    numbers = _select_replicas(handle.service, replica, replica_index, previous=previous)
    if not numbers:
        note(f"{handle.name} {handle.version} has no replica now; it is {handle.phase}")
        return 0
    code = 0
    for number in numbers:
        if len(numbers) > 1:
            note(f"replica {number}:")
        chunks: Iterator[bytes] = handle.logs(
            replica=number, follow=follow, lines=lines, attempt=attempt, installation=installation,
            timestamps=timestamps,
        )  # fmt: skip
        printed = print_log(chunks, f"replica {number}", goes_on=False)
        if printed == NOTHING:
            note(f"replica {number} has no output yet")
        code = max(code, printed, 0)
    return code


def _select_replicas(
    service: Service, replica: int | None, replica_index: int | None, *, previous: bool
) -> list[int]:
    """The numbers of the replicas whose output is asked for; of those that have ended where
    there is none.
    """
    numbers, ended = [one.number for one in service.replicas], [one.number for one in service.ended]
    if replica is not None:
        return [replica]
    if replica_index is not None:
        if replica_index >= len(numbers):
            raise InvalidRequest(
                f"replica_index is {replica_index}; there are {len(numbers)} replicas",
                field="replica_index",
                value=replica_index,
                allowed=f"0 to {len(numbers) - 1}" if numbers else "none",
            )
        return [numbers[replica_index]]
    if previous and not ended:
        raise InvalidRequest(
            f"no replica of {service.name} {service.version} has ended, or none that is kept",
            field="previous", allowed="leave it out",
        )  # fmt: skip
    if ended and (previous or not numbers):
        if not previous:
            note(
                f"{service.name} {service.version} has no replica now; it is {service.phase}. "
                f"Replica {ended[-1]} said:"
            )
        return ended[-1:]
    return numbers
