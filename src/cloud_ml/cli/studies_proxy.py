"""What ``cloudml hp proxy`` does, and what it says."""

from __future__ import annotations

import asyncio
import sys

import click

from cloud_ml.cli.display.output import echo, note
from cloud_ml.cli.guard import INTERRUPTED
from cloud_ml.cli.session import Session, pass_session
from cloud_ml.optuna_proxy import peers

_INSTALL = "hp proxy needs the package hpack. Install it: pip install 'cloud-ml[optuna]'"


@click.command("proxy")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="Port of loopback to listen on; a free one by default.",
)
@pass_session
def proxy(session: Session, port: int) -> int:
    """Listen on this machine for Optuna's client, until Ctrl-C.

    Only processes of your user are served, with your key. Paste the line that is printed into your
    script.
    """
    try:
        from cloud_ml.optuna_proxy import program
    except ModuleNotFoundError as error:
        if error.name != "hpack":
            raise
        raise click.ClickException(_INSTALL) from None
    try:
        peers.check_table()
    except peers.NoConnectionTable as error:
        raise click.ClickException(
            f"hp proxy needs Linux: {error}, so it cannot know whose processes connect. "
            "Run it where the server runs, or in a Linux container beside your script."
        ) from None
    session.client.whoami()  # a key that is wrong is told now, and not to Optuna
    try:
        sockets = program.listen(port)
    except OSError as error:
        raise click.ClickException(f"port {port} cannot be taken: {error.strerror}") from None
    chosen = sockets[0].getsockname()[1]
    echo(f'storage = optuna.storages.GrpcStorageProxy(host="localhost", port={chosen})')
    note(f"It works on the studies at {session.client.endpoint}. Ctrl-C ends it.")
    sys.stdout.flush()

    async def serve() -> None:
        from cloud_ml.aio import AsyncCloudMlClient

        async with AsyncCloudMlClient(endpoint=session.endpoint, context=session.context) as client:
            await program.serve(sockets, client.studies.optuna().call, _say_refused)

    try:
        asyncio.run(serve())
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _say_refused(owner: int | None) -> None:
    whose = "an unknown user" if owner is None else f"user {owner}"
    note(f"Refused a connection of {whose}: only your own processes are served.")
