"""The gateway's process: ``python -m cloud_ml.gateway.main``, with its configuration as JSON on
standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import socket
import ssl
import sys
from collections.abc import Mapping
from pathlib import Path

import uvloop

from cloud_ml import failpoints, open_files
from cloud_ml.gateway import certificates, opener, rights
from cloud_ml.gateway.config import LOCK_NAME, GatewayConfig, Instruction
from cloud_ml.gateway.control import Control, take_over, write_secret
from cloud_ml.gateway.gateway import Gateway
from cloud_ml.models import codec
from cloud_ml.observability import logging as logs
from cloud_ml.serving import memory

_LOOK_S = 1.0
_ALONE_S = 30.0


async def serve(
    config: GatewayConfig,
    tls: ssl.SSLContext | None,
    sockets: Mapping[int, socket.socket],
    known: Instruction,
) -> None:
    """Serve until there is nothing to serve, or a successor takes over."""
    loop = asyncio.get_running_loop()
    gateway = Gateway(config, loop, tls)
    # First of all: the predecessor has stopped to take calls, and waiting callers are in these
    # queues.
    await gateway.follow(known, sockets)
    control = Control(config, gateway)
    await control.start()
    write_secret(Path(LOCK_NAME), str(os.getpid()))  # whole or not at all
    opener.when_lost(loop, control.over.set)  # without it nobody can be asked
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, control.over.set)
    print("ready", flush=True)  # noqa: T201 - the server waits for this line
    # Its reader ends with the server, which this process outlives. `open` takes the lowest free
    # number, which is then 1.
    os.close(1)
    os.open(os.devnull, os.O_WRONLY)
    # What is there now stays for good: no later collection looks at it.
    gc.freeze()
    alone_s = 0.0
    while not control.over.is_set() and control.reachable and alone_s < _ALONE_S:
        alone_s = alone_s + _LOOK_S if not control.connections and not gateway.known.routes else 0.0
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(control.over.wait(), _LOOK_S)
    if control.reachable:  # nobody has taken over
        control.remove()
    control.close()
    await gateway.drain(config.drain_s)


def main() -> None:
    """Become the gateway."""
    failpoints.arm(os.environ)
    open_files.raise_limit()
    config = codec.decode(GatewayConfig, json.load(sys.stdin))
    if config.log_format == "json":
        logs.configure("json")
    else:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    memory.map_long_bodies()
    os.chdir(config.folder)
    tls = certificates.context(config.tls_cert, config.tls_key)  # before a predecessor leaves
    # Forks the opener, which keeps root's rights: before threads, TLS connections and strangers.
    alone = rights.can_give_up(config.user, Path(), config.job_sockets)
    inherited = take_over(Path())
    if alone:
        rights.give_up(config.user)
    uvloop.run(serve(config, tls, *inherited))


if __name__ == "__main__":
    main()
