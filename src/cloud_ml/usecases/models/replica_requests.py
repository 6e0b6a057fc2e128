"""A question to a replica: one GET, with a limit to how long and how large an answer may be."""

from __future__ import annotations

import asyncio
import contextlib

from cloud_ml.domain.services.routes import SOCKET
from cloud_ml.engines.abilities import Endpoints
from cloud_ml.errors import CloudMlError, Unavailable

MOST_BYTES = 1 << 20
"""Of an answer. Replicas run what tenants bring: they are not believed to be brief."""
PATIENCE_S = 5.0


async def ask(
    endpoints: Endpoints, uid: str, path: str, *, patience_s: float = PATIENCE_S
) -> bytes:
    """The body of a replica's answer.

    Raises:
        Unavailable: It does not answer, or not with 200.
    """
    request = f"GET {path} HTTP/1.1\r\nHost: replica\r\nConnection: close\r\n\r\n"
    try:
        async with asyncio.timeout(patience_s):
            reader, writer = await endpoints.open_connection(uid, SOCKET, limit=MOST_BYTES)
            with contextlib.closing(writer):
                writer.write(request.encode("ascii"))
                head = await reader.readuntil(b"\r\n\r\n")
                body = await _body(reader, head.lower())
    except (
        CloudMlError,
        OSError,
        TimeoutError,
        ValueError,
        EOFError,
        asyncio.LimitOverrunError,
    ) as error:
        raise Unavailable("the replica does not answer now") from error
    if not head.startswith(b"HTTP/1.1 200 "):
        raise Unavailable(f"the replica answered {head[9:12].decode('ascii', 'replace')}")
    return body


async def _body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    length = next(
        (line[15:] for line in head.split(b"\r\n") if line.startswith(b"content-length:")), None
    )
    if length is not None:
        return await reader.readexactly(min(int(length), MOST_BYTES))
    if b"\r\ntransfer-encoding: chunked" in head:
        return await _chunks(reader)
    found = bytearray()
    while len(found) < MOST_BYTES and (some := await reader.read(65536)):
        found += some
    return bytes(found)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    found = bytearray()
    while size := int((await reader.readline()).partition(b";")[0], 16):
        if len(found) + size > MOST_BYTES:
            raise ValueError("the answer is too long")
        found += await reader.readexactly(size)
        await reader.readexactly(2)
    return bytes(found)
