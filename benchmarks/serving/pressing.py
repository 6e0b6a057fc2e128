"""Requests in numbers, by h2load: it costs the machine little, and writes down what each request
took.

It sends bodies in frames of 16 kB, whatever a server allows. What gRPC's own clients do with that
is asked of one.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import grpc
from harness import NotHere

from serving.queries import Question


@dataclass(frozen=True)
class Pressed:
    """How many a second, and the milliseconds of each."""

    rate: float
    ms: list[float]


def h2load() -> str:
    """The program."""
    found = shutil.which("h2load")
    if found is None:
        raise NotHere("there is no h2load: apt-get install nghttp2-client")
    return found


def press(port: int, query: Question, count: int, *, clients: int = 1, streams: int = 1) -> Pressed:
    """Ask so often, on so many connections with so many streams each. Every answer has to come, and be of the same size.

    Raises:
        SystemExit: where one does not.
    """  # noqa: E501
    expected = len(query.ask(port))
    with tempfile.TemporaryDirectory() as folder:
        body, log = Path(folder, "body"), Path(folder, "log")
        body.write_bytes(query.body)
        command = [
            h2load(),
            "-n",
            str(count),
            "-c",
            str(clients),
            "-m",
            str(streams),
            "-t",
            "1",
            "-d",
            str(body),
            f"--log-file={log}",
            *(["--h1"] if not query.grpc else []),
        ]
        for field in query.fields:
            command += ["-H", field]
        report = subprocess.run(
            [*command, f"http://127.0.0.1:{port}{query.path}"],
            capture_output=True, text=True, timeout=300, check=True,
        ).stdout  # fmt: skip
        took = [int(line.split("\t")[2]) / 1000 for line in log.read_text().splitlines()]
    rate = re.search(r"finished in [\d.]+\w+, ([\d.]+) req/s", report)
    good = re.search(r"status codes: (\d+) 2xx", report)
    size = re.search(r"traffic: .*\((\d+)\) data", report)
    if rate is None or good is None or size is None or int(good[1]) != count:
        raise SystemExit(f"not every answer was a good one:\n{report}")
    if query.grpc and int(size[1]) != expected * count:
        raise SystemExit(f"answers of {int(size[1]) / count:.1f} bytes where {expected} are right")
    return Pressed(float(rate[1]), took)


def press_own(port: int, query: Question, count: int, *, streams: int) -> Pressed:
    """The same by gRPC's own client, on one connection with so many calls under way.

    Raises:
        SystemExit: where an answer is not like the first.
    """
    expected = len(query.ask(port)) - 5
    took: list[float] = []
    with (
        grpc.insecure_channel(f"127.0.0.1:{port}") as channel,
        ThreadPoolExecutor(streams) as callers,
    ):
        call = channel.unary_unary(query.path)

        def one(_: int) -> bool:
            begun = time.monotonic()
            answer = call(query.body[5:], timeout=60)
            took.append((time.monotonic() - begun) * 1e3)
            return len(answer) == expected

        begun = time.monotonic()
        if not all(callers.map(one, range(count))):
            raise SystemExit(f"not every answer had {expected} bytes")
        return Pressed(count / (time.monotonic() - begun), took)
