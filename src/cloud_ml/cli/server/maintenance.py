"""``cloudml server backup|check|migrate|restore``: what an operator does to the database."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cloud_ml.cli.display.output import note
from cloud_ml.cli.server.group import DATA_DIR_HELP, load_settings, parts_missing
from cloud_ml.errors import CloudMlError

if TYPE_CHECKING:
    from cloud_ml.settings import Settings

_SHOWN = 5
_PLACE = ("data_dir", "database_url", "file")


def server_command(command: Callable[..., None]) -> Callable[..., None]:
    """Say which server is meant, by options of the command or of ``cloudml server`` before it."""

    @click.option(
        "--data-dir", type=click.Path(file_okay=False, readable=False), help=DATA_DIR_HELP
    )
    @click.option("--database-url", help="Database; SQLite in the data folder by default.")
    @click.option(
        "--config", "file", type=click.Path(exists=True, dir_okay=False), help="Settings, as TOML."
    )
    @wraps(command)
    def run(**given: Any) -> None:
        ctx = click.get_current_context()
        assert ctx.parent is not None
        place = {name: given.pop(name) for name in _PLACE}
        options = ctx.parent.params | {
            name: value for name, value in place.items() if value is not None
        }
        try:
            command(load_settings(options), **given)
        except ImportError as error:
            raise parts_missing(error) from error

    return run


def place_options(ctx: click.Context) -> str:
    """The options by which a command was given its server, to be repeated in another one."""
    given = dict(ctx.parent.params) if ctx.parent is not None else {}
    given |= {name: value for name, value in ctx.params.items() if value is not None}
    options = {"data_dir": "--data-dir", "file": "--config", "database_url": "--database-url"}
    return "".join(
        f" {option} {shlex.quote(given[name])}" for name, option in options.items() if given[name]
    )


_RIGHTS = (
    "Users, keys and tokens that ended after the backup work again. "
    "Disable or revoke them again: cloudml admin users, cloudml admin keys, cloudml token."
)


def _database_of(settings: Settings) -> str:
    """The database in words, with its folder where that says which one it is."""
    return "the database" + (
        "" if settings.server.database_url else f" of the data folder {settings.data_dir}"
    )


@click.command(help="Copy the database to the file TARGET while the server runs. The objects of "
                    "the data folder are plain files: copy them afterwards, and everything the "
                    "copy speaks of is among them.")  # fmt: skip
@click.argument("target", type=click.Path(path_type=Path))
@server_command
def backup(settings: Settings, target: Path) -> None:
    from cloud_ml import maintenance

    maintenance.backup(settings, target)
    size = target.stat().st_size
    click.echo(f"{target} holds {_database_of(settings)}, {size} bytes, all of them checked.")


@click.command(help="Put a copy of the backup SOURCE in the place of the database, which is kept "
                    "beside it. No server may use the data folder meanwhile.")  # fmt: skip
@click.argument("source", type=click.Path(path_type=Path))
@server_command
def restore(settings: Settings, source: Path) -> None:
    from cloud_ml import maintenance

    is_new = not settings.data_dir.exists()
    aside = maintenance.restore(settings, source)
    sentence = f"{_database_of(settings)} is that of {source} now."
    click.echo(sentence[0].upper() + sentence[1:])
    if is_new:
        click.echo("The data folder is new and holds nothing else: copy the objects into it, too.")
    if aside is not None:
        click.echo(f"The one before is kept as {aside}.")
    click.echo(_RIGHTS)
    _note_unknown_jobs(settings)


def _note_unknown_jobs(settings: Settings) -> None:
    """Name what runs on, although the restored database does not know it."""
    from cloud_ml.shutdown import Shutdown

    with suppress(CloudMlError, OSError):  # the restore itself is done
        if uids := Shutdown(settings).unknown_gangs():
            number = len(uids)
            jobs = "job or replica runs" if number == 1 else "jobs or replicas run"
            more = f" and {number - _SHOWN} more" if number > _SHOWN else ""
            place = place_options(click.get_current_context())
            note(
                f"{number} {jobs} on this machine without a record in this database, unseen until "
                f"the end: {', '.join(uids[:_SHOWN])}{more}. To end everything that runs: "
                f"cloudml server stop --everything{place}"
            )


@click.command(help="Bring the database to this version's schema, as the start of a server does.")
@server_command
def migrate(settings: Settings) -> None:
    from cloud_ml import maintenance

    done = maintenance.migrate(settings)
    if done.before == done.after:
        click.echo(f"{done.database} has the schema {done.after} already.")
    else:
        click.echo(f"{done.database} went from {done.before or 'no schema'} to {done.after}.")


@click.command(
    help="Look over the whole database and say what was verified. Nothing is changed; the "
    "server may run."
)
@server_command
def check(settings: Settings) -> None:
    from cloud_ml import maintenance

    note(f"Checking {_database_of(settings)}")
    for sentence in maintenance.check(settings):
        click.echo(f"ok  {sentence}")
