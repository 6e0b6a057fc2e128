"""Runs one server process: listens, serves the API, leads the controller, and leaves in order."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import os
import resource
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvicorn

from cloud_ml import data_folder, failpoints, open_files, timers
from cloud_ml.api.app import create_app
from cloud_ml.api.http1 import Bounds, make_protocol
from cloud_ml.bootstrap.build import Server, build
from cloud_ml.bootstrap.credentials import write_credentials
from cloud_ml.engines.abilities import Handover, JobListening
from cloud_ml.errors import CloudMlError, Conflict, InvalidRequest, Unavailable
from cloud_ml.job_endpoints import JobEndpoints
from cloud_ml.malloc_tuning import share_arenas
from cloud_ml.sdk import config as client_config
from cloud_ml.settings import ServerSettings, Settings
from cloud_ml.settings.gateway import ports_of
from cloud_ml.settings.server import is_loopback
from cloud_ml.usecases.data_folder_claim import keep_if_any

_GARBAGE = 7_000
"""Garbage is looked for after so many new objects. A job makes some hundreds that live as long as it
does: with Python's 700, looking for cycles among them is a fiftieth of the server's work.
"""
_BACKLOG = 2048
_ACCEPTED_AT_ONCE = 64
_JOBS_RETRY_S = 5.0
"""asyncio tries so often in a row, also when no descriptor is left, and complains each time."""
_COMPLAINT_PERIOD_S = 10.0
_SWITCH_S = 0.0005
"""How long a thread may keep the interpreter from the event loop. At Python's own 5 ms, a few
threads that compute made each request wait 50 ms and more.
"""
_UMASK = 0o022
"""Of a server of root: its jobs have users of their own, which read trainers and environments.
Whatever is secret is made with a mode of its own. The unit of systemd sets 077.
"""
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
logger = logging.getLogger(__name__)


def run(
    settings: Settings,
    *,
    access_key: str | None = None,
    secret: str | None = None,
    started: Callable[[str, Path, Server], None],
) -> None:
    """Serve until SIGTERM or SIGINT. Jobs run on afterwards.

    Args:
        settings: All settings.
        access_key: The administrator's key after the first start; generated when left out.
        secret: Its secret.
        started: Called once requests are answered, with the endpoint, the credentials' file and the
            server.

    Raises:
        CloudMlError: The server cannot start; says why and what to do.
    """
    share_arenas()  # before there are threads
    # A core dump would have keys and secrets in it. Child processes inherit this limit.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if os.geteuid() == 0:
        os.umask(_UMASK)
    settings = fit_connections(settings, open_files.raise_limit())
    data_folder.check_owner(settings.data_dir)  # its server may have the port that is wanted
    own = settings.server
    _check_exposure(settings, "host", own.host, (own.tls_cert, own.tls_key), "")
    theme = "gateway." if settings.gateway_tls != (own.tls_cert, own.tls_key) else ""
    _check_exposure(settings, "gateway.host", settings.gateway_host, settings.gateway_tls, theme)
    warn_of_own_port(settings)
    listener = _listen(settings.server)
    endpoint = _endpoint(settings.server, listener)
    server = build(settings, access_key=access_key, secret=secret)
    sys.setswitchinterval(_SWITCH_S)
    try:
        credentials = write_credentials(server.settings.data_dir, server.first_start, endpoint)
        _write_user_config(server, endpoint)
        asyncio.run(_serve(server, listener, lambda: started(endpoint, credentials, server)))
    finally:
        server.close()


def warn_of_own_port(settings: Settings) -> None:
    """Say that a port for model services is the server's own, which none of them can have."""
    own, ports = settings.server.port, settings.gateway.ports
    if any(own in each for each in ports_of(ports)):
        logger.warning(
            "gateway.ports is '%s' and contains %d, which is server.port: no model service gets "
            "this port; leave it out, or choose another server.port",
            ports,
            own,
        )


async def _serve(server: Server, listener: socket.socket, started: Callable[[], None]) -> None:
    settings = server.settings.server
    # On a thread: others need the event loop meanwhile.
    application = asyncio.create_task(
        asyncio.to_thread(create_app, server.platform, server.platform.resources)
    )
    if settings.shared_data:
        app = await application
        controller = asyncio.create_task(
            server.controller.run(lambda: _engine_of_leader(server, app)), name="controller"
        )
        for_jobs = None
    else:
        await server.engine.start()
        failpoints.here("start.engine")
        controller = asyncio.create_task(server.controller.run(), name="controller")
        app = await application
        for_jobs = asyncio.create_task(_serve_jobs(server, app), name="for jobs")
    claiming = asyncio.create_task(
        keep_if_any(server.claim, server.platform.offload), name="claim of the data folder"
    )
    web = _Web(
        uvicorn.Config(
            app,
            http=make_protocol(_bounds(settings), server.platform.metrics.refused_connections.add),
            timeout_keep_alive=max(1, int(settings.keep_alive_s)),
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            date_header=False,  # see ``api.http1``
            backlog=_ACCEPTED_AT_ONCE,
            ssl_certfile=settings.tls_cert or None,
            ssl_keyfile=settings.tls_key or None,
            timeout_graceful_shutdown=max(1, int(settings.shutdown_timeout_s)),
            proxy_headers=settings.behind_proxy,
            forwarded_allow_ips=settings.proxy_addresses,
        ),
        started,
    )
    asyncio.get_running_loop().set_exception_handler(_Complaints())
    serving = asyncio.create_task(web.serve(sockets=[listener]), name="web")
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([controller, serving, stopping], return_when=asyncio.FIRST_COMPLETED)
    finally:
        logger.info("server stops; jobs run on")
        # Calls that wait for changes end now; the web server would wait for them otherwise.
        server.platform.hub.close()
        web.stop()
        tasks = [controller, claiming, *([for_jobs] if for_jobs is not None else [])]
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, serving, return_exceptions=True)
        stopping.cancel()
        # Close these after the controller: a running pass still uses both.
        await server.gateway.close()
        await server.engine.close()
    for result in results:
        if isinstance(result, Exception):
            raise result


async def _serve_jobs(server: Server, app: Any) -> None:
    """Answer jobs on the sockets that they reach, until cancelled. No job has a way here from an
    engine that does not listen for them.
    """
    engine = server.engine
    if not isinstance(engine, JobListening):
        return
    endpoints = JobEndpoints(
        app,
        replace(
            _bounds(server.settings.server),
            connections=server.settings.tracking.job_connections,
        ),
        server.platform.metrics.refused_connections.add,
    )
    while True:
        try:
            async with contextlib.aclosing(engine.job_listeners()) as listeners:
                await endpoints.run(listeners)
        except OSError as error:
            logger.warning("jobs cannot reach the server, for some seconds: %s", error.strerror)
        else:  # jobs have no way here
            return
        await timers.pause(_JOBS_RETRY_S)


@contextlib.asynccontextmanager
async def _engine_of_leader(server: Server, app: Any) -> AsyncIterator[None]:
    """The engine is that of the one server of the data folder that leads.

    Raises:
        Unavailable: It cannot be started now. The server answers requests all the same.
    """
    try:
        try:
            await server.engine.start()
        except OSError as error:
            raise Unavailable(f"the engine cannot be started: {error}") from error
        failpoints.here("start.engine")
        for_jobs = asyncio.create_task(_serve_jobs(server, app), name="for jobs")
        try:
            yield
        finally:
            for_jobs.cancel()
            await asyncio.gather(for_jobs, return_exceptions=True)
    finally:
        if isinstance(server.engine, Handover):
            await server.engine.step_down()


def fit_connections(settings: Settings, files: int) -> Settings:
    """The settings with no more connections than a process with so many open files can have.

    Connections that could not be accepted would be everybody's: half of those that are left are one
    organisation's.
    """
    most = open_files.connections_that_fit(files)
    if settings.server.connections <= most:
        return settings
    logger.warning(
        "at most %d files may be open, so the server takes %d connections and not %d "
        "(server.connections); raise it by LimitNOFILE= in the unit of systemd, or by ulimit -Hn",
        files,
        most,
        settings.server.connections,
    )
    share = min(settings.api.requests_per_org, max(1, most // 2))
    return replace(
        settings,
        server=replace(settings.server, connections=most),
        api=replace(settings.api, requests_per_org=share),
    )


def _bounds(settings: ServerSettings) -> Bounds:
    return Bounds(
        connections=settings.connections,
        header_bytes=settings.header_limit_bytes,
        header_count=settings.header_limit_count,
        header_timeout_s=settings.header_timeout_s,
        body_timeout_s=settings.body_timeout_s,
        write_timeout_s=settings.write_timeout_s,
    )


class _Web(uvicorn.Server):
    """Uvicorn without its own signal handlers, quiet when idle, and with a word when it answers."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._started = started
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Answer what is open, and leave."""
        self.should_exit = True
        self._stopping.set()

    async def main_loop(self) -> None:
        """Wait for the end, without looking ten times a second whether it has come: answers date
        themselves.
        """
        await self._stopping.wait()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            # asyncio has made the queue as short as what it accepts at once.
            listener.listen(_BACKLOG)
        # what was imported and made so far stays: looking through it for garbage holds up all for
        # 60 ms
        gc.freeze()
        gc.set_threshold(_GARBAGE)
        self._started()

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]
        yield


class _Complaints:
    """What the event loop says of errors that nobody takes: that nothing can be accepted is said
    now and then.
    """

    def __init__(self) -> None:
        self._quiet_until = 0.0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not (
            isinstance(error, OSError)
            and error.errno in _EXHAUSTED
            and "accept" in str(context.get("message"))
        ):
            loop.default_exception_handler(context)
        elif loop.time() >= self._quiet_until:
            self._quiet_until = loop.time() + _COMPLAINT_PERIOD_S
            logger.error(
                "no connection can be accepted: %s; see server.connections and ulimit -n",
                error.strerror,
            )


def _check_exposure(
    settings: Settings, field: str, host: str, pair: tuple[str, str], theme: str
) -> None:
    """Refuse to send signatures, tokens and data over a network in the clear."""
    cert, key = pair
    if bool(cert) != bool(key):
        names = f"{theme}tls_cert and {theme}tls_key" if theme else "--tls-cert and --tls-key"
        raise InvalidRequest(f"{names} are given together or not at all", field=f"{theme}tls_cert")
    if cert:
        _check_certificate(cert, key, f"{theme}tls_cert")
    if cert or settings.server.behind_proxy or is_loopback(host):
        return
    raise InvalidRequest(
        f"listening on {host} without TLS would show keys and data to the network",
        field=field,
        value=host,
        allowed="a loopback address, or TLS",
        hint="Give --tls-cert and --tls-key, or --behind-proxy if a proxy in front speaks TLS.",
    )


def _check_certificate(cert: str, key: str, field: str) -> None:
    """Find out before anything is started whether the two files can be used."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise InvalidRequest(
            f"the certificate {cert} with the key {key} cannot be used for TLS: {error}",
            field=field,
            value=cert,
            allowed="a PEM file of the chain and a PEM file of the unencrypted private key that "
            "belongs to it",
        ) from error


def _listen(settings: ServerSettings) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM
        )[0]
        # asyncio switches Nagle's algorithm off only where the protocol is named; with it, answers
        # wait 40 ms.
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        raise _not_listening(settings, error) from error
    listener.listen(_BACKLOG)
    listener.set_inheritable(False)
    return listener


def _not_listening(settings: ServerSettings, error: OSError) -> CloudMlError:
    """Why the address cannot be had, with the way out of this one case."""
    target = f"cannot listen on {settings.host}:{settings.port}"
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        unknown = isinstance(error, socket.gaierror)
        reason = "this name has no address" if unknown else "this machine does not have the address"
        return InvalidRequest(
            f"{target}: {reason}",
            field="host",
            value=settings.host,
            allowed="127.0.0.1, 0.0.0.0 for all networks, or an address of this machine",
            hint="See the addresses of this machine with: ip address",
        )
    hint = "Is a server running already? Choose another with --port (0 takes a free one)."
    if error.errno == errno.EACCES:
        hint = (
            "Ports below 1024 need a right of root. Choose a higher --port, with a proxy before "
            "it, or add AmbientCapabilities=CAP_NET_BIND_SERVICE to the unit of systemd."
        )
    return Conflict(
        f"{target}: {os.strerror(error.errno or 0)}",
        field="port",
        value=settings.port,
        hint=hint,
    )


def _endpoint(settings: ServerSettings, listener: socket.socket) -> str:
    scheme = "https" if settings.tls_cert else "http"
    host = settings.host
    if host in ("0.0.0.0", "::"):  # noqa: S104 - what a client of this machine can use instead
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"  # noqa: S104
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"


def _write_user_config(server: Server, endpoint: str) -> None:
    """On the first start, when the user has no configuration, write one so that the CLI works at
    once.
    """
    admin = server.first_start.admin
    path = client_config.config_path()
    if admin is None or path.exists():
        return
    try:
        client_config.write_context(
            "default", client_config.Context(endpoint, admin.access_key, admin.secret), path=path
        )
    except (InvalidRequest, OSError) as error:
        logger.warning(
            "the CLI's configuration was not written",
            extra={"path": str(path), "error": str(error)},
        )
