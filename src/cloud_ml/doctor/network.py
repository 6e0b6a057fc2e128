"""Where the server listens: whether it runs already, and whether it may."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator
from pathlib import Path

from cloud_ml.doctor.findings import Area, Finding
from cloud_ml.doctor.reach import Unreachable, reach
from cloud_ml.settings import Settings

_AREA = Area("network")
_LOCAL = ("localhost", "127.0.0.1", "::1")


def examine(settings: Settings) -> Iterator[Finding]:
    """Look at the address that the server is told to listen on."""
    server = settings.server
    address = f"{server.host}:{server.port}"
    if _is_port_taken(server.host, server.port):
        yield _who(server.host, server.port, tls=bool(server.tls_cert))
    else:
        yield _AREA.ok("address", f"{address} is free")
    if server.host in _LOCAL or _loopback(server.host):
        yield _AREA.ok("exposure", "only this machine reaches the server")
    elif server.tls_cert:
        missing = [path for path in (server.tls_cert, server.tls_key) if not Path(path).is_file()]
        if missing:
            yield _AREA.problem(
                "exposure", f"no such file: {', '.join(missing)}", "see --tls-cert and --tls-key"
            )
        else:
            yield _AREA.ok("exposure", "others reach the server, over TLS")
    elif server.behind_proxy:
        yield _AREA.ok("exposure", "others reach the server through a TLS proxy")
    else:
        message = (
            f"{server.host} is beyond loopback and there is no TLS, so the server will not start"
        )
        yield _AREA.problem("exposure", message, "--tls-cert and --tls-key, or --behind-proxy")


def _is_port_taken(host: str, port: int) -> bool:
    if port == 0:
        return False
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return True
    return False


def _who(host: str, port: int, *, tls: bool) -> Finding:
    shown = f"{host}:{port}"
    if tls:
        return _AREA.warning(
            "address", f"{shown} is taken, perhaps by a server of ours", "or choose --port"
        )
    target = "127.0.0.1" if host in ("0.0.0.0", "::") else host  # noqa: S104 - told, not bound
    try:
        headers = reach(f"http://{f'[{target}]' if ':' in target else target}:{port}/healthz")
    except Unreachable:
        return _AREA.warning(
            "address", f"{shown} is taken by something else", "choose another with --port"
        )
    if headers.get("X-Request-Id") is not None:
        return _AREA.ok("address", f"{shown}: a server of ours answers")
    return _AREA.warning(
        "address", f"{shown} is taken by another HTTP server", "choose another with --port"
    )


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
