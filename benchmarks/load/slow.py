"""Hundreds of clients that misbehave beside one that does not: what he notices, and when they are
gone.

Half-open connections that never send, heads and bodies that stop in the middle, and readers who do
not read the large answers that they asked for. The time limits are shortened, so that their end is
seen. Run:
``python benchmarks/run.py load.slow``.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from urllib.parse import urlsplit

from harness import KEY, SECRET, Figure, Server, high, serving, temporary_folder, upload, wheel

from load.cost import document, status
from load.machine import memory_mb
from load.paced import Kind, check, paced
from load.wire import Signer, ask, connect

EACH = int(os.environ.get("LOAD_EACH", "150"))
SECONDS, LIMIT_S = 6.0, 4
OBJECT_BYTES = 64 << 20


def run() -> list[Figure]:
    limits = dict.fromkeys(
        ("HEADER_TIMEOUT_S", "BODY_TIMEOUT_S", "WRITE_TIMEOUT_S", "KEEP_ALIVE_S"), LIMIT_S
    )
    settings = {f"CLOUDML_SERVER_{name}": value for name, value in limits.items()}
    with (
        temporary_folder() as folder,
        serving(**settings, CLOUDML_CONTROLLER_MAX_RUNNING_JOBS=1) as server,
    ):
        client = server.client()
        large = folder / "large"
        with large.open("wb") as file:
            file.truncate(OBJECT_BYTES)
        uri = upload(client, wheel(folder, "pass\n"))
        bucket = client.whoami().default_bucket
        client.storage.upload(large, f"fds://{bucket}/large")
        first = asyncio.run(_misbehave(server, uri, bucket, "first"))
        files = _files(
            server
        )  # connections to the database are kept from the first time that so many were needed
        asyncio.run(_misbehave(server, uri, bucket, "second"))
        left = Figure(
            "files and connections that are left by a second time",
            max(0, _files(server) - files),
            "",
            5,
        )
    return [*first, left]


class _Bad(asyncio.Protocol):
    """Sends what it was told to, reads nothing, and notes when it was hung up on."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._began = time.monotonic()
        self.cut_after: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)
        if b"/large" in self._request:
            transport.pause_reading()
            self._watch = asyncio.get_running_loop().call_later(0.5, self._look, transport)

    def _look(self, transport: asyncio.Transport) -> None:
        """Who does not read does not see the end: the state of the socket tells."""
        info = transport.get_extra_info("socket").getsockopt(
            6, 11, 1
        )  # TCP_INFO: its first byte is the state
        if info[0] != 1:  # not established any more
            self.connection_lost(None)
            transport.abort()
        else:
            self._watch = asyncio.get_running_loop().call_later(0.5, self._look, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.cut_after is None:
            self.cut_after = time.monotonic() - self._began


async def _misbehave(server: Server, uri: str, bucket: str, job: str) -> list[Figure]:
    sign, place, loop = Signer(KEY, SECRET), urlsplit(server.endpoint), asyncio.get_running_loop()
    wire = await connect(server.endpoint)
    made = await ask(wire, sign.request("POST", "/api/v1/jobs", document(job, uri)))
    assert made.status == 201, made.body
    before = memory_mb(server.pids[:1])
    head = sign.request("GET", "/api/v1/jobs")
    body = sign.request("POST", "/api/v1/jobs", document("never", uri))
    kinds = {
        "half-open": b"",
        "half a head": head[: len(head) // 2],
        "half a body": body[:-20],
        "a reader who does not read": sign.request("GET", f"/api/v1/storage/{bucket}/large"),
    }
    bad: dict[str, list[_Bad]] = {}
    for name, request in kinds.items():
        bad[name] = [
            (await loop.create_connection(lambda s=request: _Bad(s), place.hostname, place.port))[1]
            for _ in range(EACH)
        ]
    good = Kind("describe", [sign.request("GET", f"/api/v1/jobs/{job}")], status(200))
    others = asyncio.create_task(paced(server.endpoint, good, 50, SECONDS))
    await asyncio.sleep(1.5)
    memory = memory_mb(server.pids[:1]) - before
    await others
    check([good])
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and any(
        one.cut_after is None for many in bad.values() for one in many
    ):
        await asyncio.sleep(0.2)
    for name, many in bad.items():
        left = sum(one.cut_after is None for one in many)
        if left:
            raise SystemExit(f"{left} of {EACH} were never hung up on: {name}")
        print(f"  {name}: hung up on after {max(one.cut_after or 0 for one in many):.1f} s at most")
    wire.close()
    await asyncio.sleep(2)
    cut = max(one.cut_after or 0 for many in bad.values() for one in many)
    return [
        Figure(
            f"beside {4 * EACH} that misbehave: requests of others, p99", high(good.took), "ms", 100
        ),
        Figure(f"memory of {4 * EACH} that misbehave", memory, "MB", 100),
        Figure(f"the last is hung up on, with a limit of {LIMIT_S} s", cut, "s", 3.0 * LIMIT_S),
    ]


def _files(server: Server) -> int:
    return len(list(Path(f"/proc/{server.pids[0]}/fd").iterdir()))


if __name__ == "__main__":
    for figure in run():
        print(figure)
