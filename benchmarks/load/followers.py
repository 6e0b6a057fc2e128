"""A thousand people follow the log of one job: how late a line is, and what a follower costs.

Ten keys of one organisation, a hundred followers each, which is what a key may have by default; the
limits of the organisation and of connections are raised. Run:
``python benchmarks/run.py load.followers``.
"""

from __future__ import annotations

import asyncio
import os
import time
from urllib.parse import urlsplit

from harness import Figure, Server, high, serving, temporary_folder, upload, wheel

from cloud_ml.client import CloudMlClient
from cloud_ml.models.jobs.train_job import TrainJob
from load.machine import cpu_seconds, memory_mb
from load.wire import Signer

FOLLOWERS = int(os.environ.get("LOAD_FOLLOWERS", "1000"))
SECONDS = float(os.environ.get("LOAD_S", "20"))
PERIOD_S = 0.5
KEYS = 10
TICKS = f"""
import itertools, sys, time
for number in itertools.count(1):
    sys.stdout.write(f"{{number}} {{time.clock_gettime(time.CLOCK_MONOTONIC)}}\\n")
    time.sleep({PERIOD_S})
"""
"""One write for each line: ``print`` in a job writes number, space and time apart, and a follower
could get them in several chunks.
"""
WAIT_S = 120.0
"""Bounds a hang: how long a follower may be without the lines that it must have."""


class Follower(asyncio.Protocol):
    """Notes how late each line of the log arrives, in milliseconds, and whether one is missing."""

    def __init__(self, request: bytes, late: list[float]) -> None:
        self._request = request
        self._late = late
        self._rest = b""
        self._last = 0
        self.lines = 0
        self.gaps = 0
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.clock_gettime(time.CLOCK_MONOTONIC)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            words = line.split()
            if len(words) != 2 or not words[0].isdigit():
                continue  # the head, or a length between two chunks
            self.gaps += self._last > 0 and int(words[0]) != self._last + 1
            self._last = int(words[0])
            self.lines += 1
            self._late.append(1000 * (now - float(words[1])))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


def keys_of(client: CloudMlClient, count: int = KEYS) -> list[Signer]:
    """Keys of the administrator's organisation."""
    made = [client.admin.create_key() for _ in range(count)]
    return [Signer(one.key.access_key, one.secret_key) for one in made]


def run() -> list[Figure]:
    settings = {
        "CLOUDML_API_REQUESTS_PER_ORG": 2 * FOLLOWERS,
        "CLOUDML_SERVER_CONNECTIONS": 2 * FOLLOWERS,
    }
    with temporary_folder() as folder, serving(**settings) as server:
        client = server.client()
        job = TrainJob("ticks", "trainer.task", upload(client, wheel(folder, TICKS)))
        server.calls().submit(job)
        while client.get_train_job("ticks").phase != "Running":
            time.sleep(0.05)
        return asyncio.run(_follow(server, keys_of(client)))


async def _follow(server: Server, keys: list[Signer]) -> list[Figure]:
    place, loop = urlsplit(server.endpoint), asyncio.get_running_loop()
    before, late = memory_mb(server.pids[:1]), list[float]()
    followers = []
    for number in range(FOLLOWERS):
        request = keys[number % KEYS].request("GET", "/api/v1/jobs/ticks/logs?follow=true")
        _, one = await loop.create_connection(
            lambda r=request: Follower(r, late), place.hostname, place.port
        )
        followers.append(one)
    await _all_have(followers, 1)
    await asyncio.sleep(2)  # what each reads of before is read
    late.clear()
    lines, cpu, own = (
        sum(one.lines for one in followers),
        cpu_seconds(server.pids[:1]),
        time.process_time(),
    )
    begin = time.monotonic()
    await asyncio.sleep(SECONDS)
    elapsed = time.monotonic() - begin
    arrived = sum(one.lines for one in followers) - lines
    share = 100 * (cpu_seconds(server.pids[:1]) - cpu) / elapsed
    client = 100 * (time.process_time() - own) / elapsed
    memory = memory_mb(server.pids[:1]) - before
    await _all_have(followers, max(one.lines for one in followers) // 2)
    if lost := sum(one.lost for one in followers):
        raise SystemExit(f"{lost} of {FOLLOWERS} followers were cut off")
    if gaps := sum(one.gaps for one in followers):
        raise SystemExit(f"lines of the log are missing in {gaps} places")
    print(
        f"  {arrived / elapsed:.0f} lines/s given in all; server {share:.0f} % of a core, "
        f"this client {client:.0f} %"
    )
    return [
        Figure(
            f"{FOLLOWERS} followers of a log: a line is late by, median", high(late, 0.5), "ms", 250
        ),
        Figure(f"{FOLLOWERS} followers of a log: a line is late by, p99", high(late), "ms", 1000),
        Figure("memory of a follower", 1024 * memory / FOLLOWERS, "kB", 100),
        Figure(
            "server CPU of giving a line to a follower",
            1e4 * share / (arrived / elapsed),
            "us",
            150,
        ),
    ]


async def _all_have(followers: list[Follower], lines: int) -> None:
    """Wait until each follower has so many lines."""
    deadline = time.monotonic() + WAIT_S
    while min(one.lines for one in followers) < lines and not any(one.lost for one in followers):
        if time.monotonic() > deadline:
            raise SystemExit(f"a follower does not get {lines} lines within {WAIT_S:g} s")
        await asyncio.sleep(0.1)


if __name__ == "__main__":
    for figure in run():
        print(figure)
