"""What ``cloudml hp proxy`` does, and what it says."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import sys
import time
from collections.abc import AsyncIterator

import click

from cloud_ml.aio.optuna import AsyncOptunaCalls
from cloud_ml.cli.display.output import echo, note
from cloud_ml.cli.guard import INTERRUPTED
from cloud_ml.cli.options.numbers import WholeNumber
from cloud_ml.cli.session import Session, pass_session
from cloud_ml.optuna_proxy import peers
from cloud_ml.optuna_proxy.job_connection import connection_of_job, is_in_job
from cloud_ml.optuna_proxy.peers import Peer
from cloud_ml.sdk.config import Connection

_INSTALL = "hp proxy needs the package hpack. Install it: pip install 'cloud-ml[optuna]'"
_QUIET_S = 10.0
"""After a line about a refused connection there is no other one for so long."""


@click.command("proxy")
@click.option(
    "--port",
    type=WholeNumber(0, 65535),
    default=0,
    metavar="N",
    help="Port of loopback to listen on; a free one by default.",
)
@pass_session
def proxy(session: Session, port: int) -> int:
    """Listen on this machine for Optuna's client, until Ctrl-C.

    Only processes of your user are served, with your key. Paste the line that is printed into your
    script. In a job, only processes of the same task are served, with the job's own token.
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
    of_job = connection_of_job(os.environ)
    if of_job is None:
        session.client.whoami()  # a key that is wrong is told now, and not to Optuna
    try:
        sockets = program.listen(port)
    except OSError as error:
        raise click.ClickException(f"port {port} cannot be taken: {error.strerror}") from None
    try:
        asyncio.run(_serve(session, of_job, sockets))
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


async def _serve(session: Session, of_job: Connection | None, sockets: list[socket.socket]) -> None:
    from cloud_ml.optuna_proxy import acceptor, program

    admission = acceptor.admit_own_sandbox if is_in_job(os.environ) else acceptor.admit_own_user
    async with _calls(session, of_job) as calls:
        if of_job is not None:
            await calls.call(
                "GetAllStudies", b"", secrets.token_urlsafe(18)
            )  # as ``whoami`` for others
        endpoint = session.client.endpoint if of_job is None else of_job.endpoint
        chosen = sockets[0].getsockname()[1]
        echo(f'storage = optuna.storages.GrpcStorageProxy(host="localhost", port={chosen})')
        note(f"It works on the studies at {endpoint}. Ctrl-C ends it.")
        sys.stdout.flush()
        await program.serve(sockets, calls.call, _Refusals(), admission)


@contextlib.asynccontextmanager
async def _calls(session: Session, of_job: Connection | None) -> AsyncIterator[AsyncOptunaCalls]:
    from cloud_ml.aio import AsyncCloudMlClient
    from cloud_ml.aio.transport import AsyncTransport

    if of_job is None:
        async with AsyncCloudMlClient(endpoint=session.endpoint, context=session.context) as client:
            yield client.studies.optuna()
        return
    transport = AsyncTransport(of_job.endpoint, of_job.credentials)
    try:
        yield AsyncOptunaCalls(transport)
    finally:
        await transport.aclose()


class _Refusals:
    """Says which connections were refused; many together in one line."""

    def __init__(self) -> None:
        self._printed_at = float("-inf")
        self._omitted = 0

    def __call__(self, peer: Peer | None) -> None:
        """Note one, and say so unless something was said a moment ago."""
        now = time.monotonic()
        if now - self._printed_at < _QUIET_S:
            self._omitted += 1
            return
        more = f" ({self._omitted} more before it)" if self._omitted else ""
        self._printed_at, self._omitted = now, 0
        whose = "an unknown user" if peer is None else f"user {peer.user}"
        note(f"Refused a connection of {whose}{more}: only your own processes are served.")
