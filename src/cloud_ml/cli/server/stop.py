"""``cloudml server stop``: end the server of this machine, and with ``--everything`` what
outlives it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from cloud_ml.cli.display.output import is_person, note
from cloud_ml.cli.options.numbers import Number
from cloud_ml.cli.server.maintenance import place_options, server_command
from cloud_ml.errors import InvalidRequest

if TYPE_CHECKING:
    from cloud_ml.settings import Settings
    from cloud_ml.shutdown import Shutdown, Survivors

_SHOWN = 5
_ANOTHER = "another cloudml server stop ends everything; waiting for it"
_QUESTION = "End the server and everything that it runs on this machine?"


@click.command(
    help="Stop the server that uses the data folder, whoever has started it, or all that share it. Jobs, model "
    "services and the gateway run "
    "on, and the next server finds them again. With --everything they end, too; data is left alone."
)
@click.option("--everything", is_flag=True, help="Also end jobs, model services, the gateway and "
                                                 "the spawner, and remove networks and control "
                                                 "groups. The next start continues services, and "
                                                 "jobs that have retries left."
              )  # fmt: skip
@click.option("-y", "--yes", is_flag=True, help="With --everything: do not ask.")
@click.option("--timeout", type=Number(0, 86400), default=60.0, show_default=True,
              help="Seconds that the server has to end. With --everything it is killed after "
                   "that.")  # fmt: skip
@click.option("--grace", type=Number(0, 86400),
              help="With --everything: seconds that jobs have to end.  [default: each job's "
                   "own]")  # fmt: skip
@server_command
def stop(
    settings: Settings, everything: bool, yes: bool, timeout: float, grace: float | None
) -> None:
    if not everything and (yes or grace is not None):
        raise click.UsageError(
            "--yes and --grace are for --everything: plain stop ends the server only"
        )
    from cloud_ml.shutdown import Shutdown, act_as_owner

    act_as_owner(settings)
    shutdown = Shutdown(settings)
    if everything:
        _stop_everything(shutdown, timeout, grace, yes=yes)
    else:
        _stop_server(shutdown, settings, timeout)


def _stop_server(shutdown: Shutdown, settings: Settings, timeout: float) -> None:
    pids = shutdown.stop_servers(timeout)
    if not pids:
        click.echo(f"No server runs on the data folder {settings.data_dir}.")
    for pid in pids:
        click.echo(f"The server (process {pid}) has stopped.")
    survivors = shutdown.survivors()
    if survivors:
        click.echo("Still there, until the next server starts or you end it:")
        for line in _lines(survivors):
            click.echo(f"  {line}")
        place = place_options(click.get_current_context())
        click.echo(f"To end this, too: cloudml server stop --everything{place}")


def _stop_everything(shutdown: Shutdown, timeout: float, grace: float | None, *, yes: bool) -> None:
    pids, survivors = shutdown.server_pids(), shutdown.survivors()
    if not pids and not survivors:
        click.echo("Nothing of this server runs.")
        return
    if not yes:
        _ask(pids, survivors)
    with shutdown.one_at_a_time(lambda: note(_ANOTHER)):
        for stopped in shutdown.stop_servers(timeout, kill=True):
            click.echo(f"The server (process {stopped}) has stopped.")
        # jobs may have started or ended while the question stood there
        survivors = shutdown.survivors()
        shutdown.end_survivors(grace)
    for line in _lines(survivors):
        click.echo(f"Ended: {line}")
    if left := shutdown.survivors():
        raise click.ClickException("this could not be ended: " + "; ".join(_lines(left)))
    click.echo("Nothing of this server runs any more. Data is unchanged.")


def _ask(pids: Sequence[int], survivors: Survivors) -> None:
    if not is_person():
        raise InvalidRequest(
            "stop --everything ends jobs and model services and asks first, but this is not a "
            "terminal",
            field="yes",
            hint="Add --yes.",
        )
    for pid in pids:
        click.echo(f"  the server (process {pid})", err=True)
    for line in _lines(survivors):
        click.echo(f"  {line}", err=True)
    if not click.confirm(_QUESTION, err=True):
        note("Nothing is stopped.")
        raise click.exceptions.Exit(1)


def _lines(survivors: Survivors) -> Iterator[str]:
    """One line for each kind of thing."""
    if survivors.jobs:
        yield f"{_count(len(survivors.jobs), 'job')} of users: {_list_names(survivors.jobs)}"
    if survivors.replicas:
        count = _count(len(survivors.replicas), "model service")
        yield f"replicas of {count}: {_list_names(survivors.replicas)}"
    if survivors.tensorboards:
        count = _count(len(survivors.tensorboards), "TensorBoard")
        yield f"{count}: {_list_names(survivors.tensorboards)}"
    if survivors.unnamed:
        number = len(survivors.unnamed)
        words = "job or replica" if number == 1 else "jobs or replicas"
        uids = _list_names(survivors.unnamed)
        yield f"{number} {words} without a readable record in the database: {uids}"
    if survivors.gateway:
        yield f"the gateway (process {survivors.gateway[0]}), which answers calls of model services"
    if survivors.spawner is not None:
        yield f"the spawner (process {survivors.spawner}), which starts jobs"
    for things in survivors.things:
        yield things.summary


def _list_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"
