"""``cloudml models logs``: the output of one replica, or of all of them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from cloud_ml.cli.completing import model_names, model_versions
from cloud_ml.cli.guard import explain
from cloud_ml.cli.harmless import Harmless
from cloud_ml.cli.model_names import named
from cloud_ml.cli.output import note
from cloud_ml.cli.session import Session, pass_session
from cloud_ml.cli.terminal import above_the_line
from cloud_ml.cli.watching import NOTHING, print_log
from cloud_ml.errors import CloudMlError, InvalidRequest

if TYPE_CHECKING:
    from cloud_ml.models.service import Service
    from cloud_ml.sdk.service_handles import ServiceHandle


@click.command()
@click.argument("name", shell_complete=model_names)
@click.argument("version", required=False, shell_complete=model_versions)
@click.option("-f", "--follow", is_flag=True, help="Go on until the replica has ended. Ctrl-C ends the output.")
@click.option("-n", "--lines", type=click.IntRange(0), help="Only the last so many lines.")
@click.option(
    "--replica",
    type=click.IntRange(1),
    help="The number of a replica, also of one that has ended; otherwise all there are, one behind the other.",
)
@click.option("--previous", is_flag=True, help="The replica that ended last.")
@click.option("--attempt", type=click.IntRange(1), help="Only this attempt, counted from 1.")
@click.option("-ri", "--replica_index", type=click.IntRange(0), help="The replica by its place, from 0.")
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
    proxy: bool,
) -> int:
    """Print the output of replicas, as they wrote it.

    What replicas said that have ended is kept, of the last few; models describe lists them.
    """
    if proxy:
        raise click.UsageError("--proxy is not offered: replicas have no proxy of their own")
    if sum((replica is not None, previous, replica_index is not None)) > 1:
        raise click.UsageError("--replica, --previous and --replica_index exclude each other")
    handle = session.client.get_model_service(*named(session, name, version))
    wanted = _meant(handle.service, replica, replica_index, previous=previous)
    if not wanted:
        note(f"{handle.name} {handle.version} has no replica now; it is {handle.phase}")
        return 0
    if len(wanted) > 1 and follow:
        return _follow(handle, wanted, lines, attempt)
    code = 0
    for number in wanted:
        if len(wanted) > 1:
            note(f"replica {number}:")
        chunks: Iterator[bytes] = handle.logs(replica=number, follow=follow, lines=lines, attempt=attempt)
        printed = print_log(chunks, f"replica {number}", goes_on=False)
        if printed == NOTHING:
            note(f"replica {number} has no output yet")
        code = max(code, printed, 0)
    return code


def _meant(service: Service, replica: int | None, replica_index: int | None, *, previous: bool) -> list[int]:
    """The numbers of the replicas whose output is asked for; of those that have ended where there is none."""
    numbers, ended = [one.number for one in service.replicas], [one.number for one in service.ended]
    if replica is not None:
        return [replica]
    if replica_index is not None:
        if replica_index >= len(numbers):
            raise InvalidRequest(
                f"replica_index is {replica_index}; there are {len(numbers)} replicas",
                field="replica_index", value=replica_index, allowed=f"0 to {len(numbers) - 1}" if numbers else "none",
            )  # fmt: skip
        return [numbers[replica_index]]
    if previous and not ended:
        raise InvalidRequest(
            f"no replica of {service.name} {service.version} has ended, or none that is kept",
            field="previous", allowed="leave it out",
        )  # fmt: skip
    if ended and (previous or not numbers):
        if not previous:
            note(
                f"{service.name} {service.version} has no replica now; it is {service.phase}. Replica {ended[-1]} said:"
            )
        return ended[-1:]
    return numbers


def _follow(handle: ServiceHandle, numbers: list[int], lines: int | None, attempt: int | None) -> int:
    """All of them at once, each line behind the number of its replica."""
    lock, out = threading.Lock(), sys.stdout.buffer
    terminal = sys.stdout.isatty()

    def write(number: int, whole: list[bytes]) -> None:
        with lock, above_the_line(sys.stdout):
            out.writelines(b"[%d] %s\n" % (number, line) for line in whole)
            out.flush()

    def follow(number: int) -> None:
        shown = Harmless() if terminal else bytes
        rest = b""
        try:
            for chunk in handle.logs(replica=number, follow=True, lines=lines, attempt=attempt):
                *whole, rest = (rest + shown(chunk)).split(b"\n")
                write(number, whole)
            write(number, [rest] if rest else [])
        except CloudMlError as error:
            with lock:
                note(f"[{number}] {explain(error)}")

    threads = [threading.Thread(target=follow, args=(number,), daemon=True) for number in numbers]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)
    except KeyboardInterrupt:
        return 130
    return 0
