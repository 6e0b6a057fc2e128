"""The program: one URL to standard output, a report to standard error. See the package for why it
is one.

Standard input is a JSON document of ``Task``; the report is one of
``{"problem": …, "passing": …}``, empty if all is well. A problem is passing if another try may
succeed.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import resource
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO
from urllib.parse import urljoin, urlsplit

from cloud_ml.fetching import git
from cloud_ml.fetching.addresses import Allowed, is_named, refusal
from cloud_ml.fetching.task import FetchFailed, Task, redact_url

Resolve = Callable[[str, int], "list[tuple[Any, Any, Any, Any, Any]]"]

_BLOCK = 64 * 1024
_SILENCE_S = 30.0
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MEMORY = 1 << 30
_PROCESSES = 512
"""Of the user in all, which git needs a few of."""
_USUAL_PORTS = {"http": 80, "https": 443}


def resolve(host: str, port: int) -> list[tuple[Any, Any, Any, Any, Any]]:
    """The addresses of a host, as the system knows them."""
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


def fetch(
    task: Task, out: BinaryIO, *, context: ssl.SSLContext | None = None, resolve: Resolve = resolve
) -> int:
    """Write what the URL leads to; returns its size.

    Each hop is resolved once, every one of its addresses is judged, and the connection goes to a
    judged address, never to a name: what the name leads to a moment later does not matter.

    Raises:
        FetchFailed: It cannot be had, or must not be.
    """
    if task.folder:
        return git.fetch(task, out, locate=lambda url: _locate_target(url, task, context, resolve))
    with _follow_redirects(task.url, task, context, resolve) as (_, response, _):
        return _body(response, out, task.size_limit)


def _locate_target(
    url: str, task: Task, context: ssl.SSLContext | None, resolve: Resolve
) -> tuple[str, str, str]:
    with _follow_redirects(url, task, context, resolve) as (place, response, address):
        if response.status in (401, 403, 404, 410):
            raise FetchFailed(
                f"{redact_url(task.url)} does not exist, or not everybody may read it"
            )
        _check_status(response)
        return place, response.headers.get("Content-Type", ""), address


@contextlib.contextmanager
def _follow_redirects(
    url: str, task: Task, context: ssl.SSLContext | None, resolve: Resolve
) -> Iterator[tuple[str, http.client.HTTPResponse, str]]:
    """Where a URL leads to in the end, the answer there, and the address that gave it."""
    allowed = Allowed.parse(task.allow)
    for _ in range(task.redirects + 1):
        response, connection, address = _ask(url, allowed, context, resolve)
        with connection, response:
            if response.status not in _REDIRECTS:
                yield url, response, address
                return
            location = response.headers.get("Location")
        if not location:
            raise FetchFailed(
                f"{redact_url(url)} answered {response.status} without saying where to go"
            )
        following = urljoin(url, location)
        # Without TLS, whoever is on the way could put other code in its place.
        if url.startswith("https:") and not following.lower().startswith("https:"):
            raise FetchFailed(f"{redact_url(url)} leads on to another scheme than https")
        url = following
    raise FetchFailed(f"{redact_url(task.url)} leads on more than {task.redirects} times")


def _ask(
    url: str, allowed: Allowed, context: ssl.SSLContext | None, resolve: Resolve
) -> tuple[http.client.HTTPResponse, socket.socket, str]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise FetchFailed(f"{redact_url(url)} is not a URL") from None
    if parts.scheme not in _USUAL_PORTS or not parts.hostname or parts.username is not None:
        raise FetchFailed(f"{redact_url(url)} leads to something else than http or https")
    host = parts.hostname
    connection = _connect(host, port or _USUAL_PORTS[parts.scheme], allowed, resolve)
    address = str(connection.getpeername()[0])
    try:
        if parts.scheme == "https":
            context = context or ssl.create_default_context()
            connection = context.wrap_socket(connection, server_hostname=host)
        client = http.client.HTTPConnection(host, port or _USUAL_PORTS[parts.scheme])
        # http.client would look the name up again.
        client.sock = connection
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        client.request(
            "GET",
            target,
            headers={"User-Agent": "cloudml-fetch", "Accept": "*/*", "Connection": "close"},
        )
        return client.getresponse(), connection, address
    except ssl.SSLError as error:
        connection.close()
        why = getattr(error, "verify_message", "") or error.reason
        raise FetchFailed(f"the certificate of {host} is not trusted: {why}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        connection.close()
        raise FetchFailed(
            f"{host} does not answer as a web server does: {_words(error)}", passing=True
        ) from None


def _connect(host: str, port: int, allowed: Allowed, resolve: Resolve) -> socket.socket:
    try:
        found = resolve(host, port)
    except (OSError, UnicodeError) as error:
        known = isinstance(error, socket.gaierror) and error.errno in (
            socket.EAI_NONAME,
            socket.EAI_NODATA,
        )
        raise FetchFailed(
            f"there is no host {host}", passing=isinstance(error, OSError) and not known
        ) from None
    # All of them before the first connection: otherwise their order would decide whether a name that
    # also leads inside is followed.
    for *_, place in found:
        if (why := refusal(host, str(place[0]), allowed)) is not None:
            raise FetchFailed(
                f"{host} leads to an address that {why}: the operator has to allow it"
            )
    failure: OSError | None = None
    for family, kind, protocol, _, place in found:
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(_SILENCE_S)
            connection.connect(place)
            _check_not_self(connection, host, str(place[0]), allowed)
        except OSError as error:
            connection.close()
            failure = error
        except BaseException:
            connection.close()
            raise
        else:
            return connection
    raise FetchFailed(f"{host} cannot be reached: {_words(failure)}", passing=True)


def _check_not_self(connection: socket.socket, host: str, address: str, allowed: Allowed) -> None:
    """The machine's own public address is as much inside as loopback is.

    Raises:
        FetchFailed: The other end is this machine.
    """
    if connection.getsockname()[0] == address and not is_named(host, address, allowed):
        raise FetchFailed(f"{host} leads to the server's own machine: the operator has to allow it")


def _check_status(response: http.client.HTTPResponse) -> None:
    if response.status in (404, 410):
        raise FetchFailed("it does not exist: the server answered 404")
    if response.status != 200:
        passing = response.status >= 500 or response.status in (408, 429)
        raise FetchFailed(f"the server answered {response.status}", passing=passing)


def _body(response: http.client.HTTPResponse, out: BinaryIO, limit: int) -> int:
    _check_status(response)
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise FetchFailed("the server sends it in an encoding that was not asked for")
    if response.length is not None and response.length > limit:
        raise FetchFailed(f"it has {response.length} bytes; allowed are {limit}")
    size = 0
    try:
        while chunk := response.read(_BLOCK):
            size += len(chunk)
            if size > limit:
                raise FetchFailed(f"it has more than {limit} bytes")
            out.write(chunk)
    except (OSError, http.client.HTTPException) as error:
        raise FetchFailed(
            f"the connection broke after {size} bytes: {_words(error)}", passing=True
        ) from None
    # What ``http.client`` still expects: ``read`` with a size does not complain of an early end.
    if response.length:
        raise FetchFailed(f"the connection ended {response.length} bytes too early", passing=True)
    return size


def _words(error: BaseException | None) -> str:
    if isinstance(error, TimeoutError):
        return f"silent for {_SILENCE_S:g} s"
    return (getattr(error, "strerror", None) or type(error).__name__)[:200]


def main() -> int:
    """Read the task, give up what is not needed, fetch, report."""
    given = json.load(sys.stdin)
    task = Task(**{**given, "allow": tuple(given.get("allow", ()))})
    # Before the rights are given up, with which its files may be out of reach.
    context = ssl.create_default_context()
    for codec in (
        "idna",
        "latin-1",
        "ascii",
    ):  # loaded on first use, when their files may be out of reach
        "host".encode(codec)
    _give_up(task)

    def over(*_: object) -> None:
        raise FetchFailed(f"it did not arrive within {task.timeout_s:g} s")

    signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, task.timeout_s)
    try:
        with os.fdopen(1, "wb", closefd=False) as out:
            fetch(task, out, context=context)
            out.flush()
    except FetchFailed as problem:
        sys.stderr.write(json.dumps({"problem": str(problem), "passing": problem.passing}))
        return 1
    except OSError as error:  # of our own disk
        sys.stderr.write(
            json.dumps({"problem": f"it cannot be kept: {_words(error)}", "passing": True})
        )
        return 1
    sys.stderr.write(json.dumps({}))
    return 0


def _give_up(task: Task) -> None:
    """What a fault in here could be used for: memory, the disk, other users' files."""
    # setrlimit(2): a write beyond RLIMIT_FSIZE then fails with EFBIG, which can be reported.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    for what, most in (
        (resource.RLIMIT_FSIZE, task.size_limit + _BLOCK),
        (resource.RLIMIT_AS, _MEMORY),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, _PROCESSES if task.folder else 0),
    ):
        resource.setrlimit(what, (most, most))
    if task.user and os.geteuid() == 0:
        # Groups before the user: afterwards they cannot be changed.
        os.setgroups([])
        os.setresgid(task.user, task.user, task.user)
        os.setresuid(task.user, task.user, task.user)
