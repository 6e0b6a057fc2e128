"""The user's side: the key in use, the server it belongs to, the clocks of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from cloud_ml.doctor.findings import Area, Finding
from cloud_ml.errors import CloudMlError
from cloud_ml.sdk.config import config_path

if TYPE_CHECKING:
    from cloud_ml.client import CloudMlClient

_AREA = Area("client")


def examine(connect: Callable[[], CloudMlClient]) -> Iterator[Finding]:
    """Look at the user's settings and ask the server who they are."""
    path = config_path()
    if path.exists() and path.stat().st_mode & 0o077:
        yield _AREA.warning(
            "settings", f"others may read {path}, which holds your secret key", f"chmod 600 {path}"
        )
    elif path.exists():
        yield _AREA.ok("settings", str(path))
    try:
        client = connect()
    except CloudMlError as error:
        yield _AREA.warning("key", error.message, error.hint or "`cloudml config init`")
        return
    with closing(client):
        try:
            who, server = client.whoami(), client.server_info()
        except CloudMlError as error:
            yield _AREA.warning("server", error.message, error.hint or "")
            return
    yield _AREA.ok("server", f"{client.endpoint} answers, version {server.version}")
    yield _AREA.ok("key", f"{who.user} of {who.org}, {who.role}")
