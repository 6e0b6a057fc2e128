"""Requests of the original storage protocol."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import format_datetime

from cloud_ml.auth import fds
from support.asgi import Answer
from support.platform import Caller


def signed(
    caller: Caller, method: str, target: str, headers: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The headers that sign it."""
    return fds.sign(
        method,
        target,
        key=caller.identity.access_key,
        secret=caller.identity.secret,
        when=format_datetime(caller.clock().replace(microsecond=0), usegmt=True),
        headers=headers,
    )


async def send(
    caller: Caller,
    method: str,
    target: str,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """Send one and return the answer."""
    return await caller.client.send(method, target, signed(caller, method, target, headers), body)
