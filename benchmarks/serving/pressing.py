"""Requests in numbers, by h2load: it costs the machine little, and writes down what each request took."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from harness import NotHere

from serving.asking import Question


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


def press(port: int, asked: Question, count: int, *, clients: int = 1, streams: int = 1) -> Pressed:
    """Ask so often, on so many connections with so many streams each. Every answer has to come, and be of the same size.

    Raises:
        SystemExit: where one does not.
    """  # noqa: E501
    expected = len(asked.ask(port))
    with tempfile.TemporaryDirectory() as folder:
        body, log = Path(folder, "body"), Path(folder, "log")
        body.write_bytes(asked.body)
        command = [h2load(), "-n", str(count), "-c", str(clients), "-m", str(streams), "-t", "1", "-d", str(body),
                   f"--log-file={log}", *(["--h1"] if not asked.grpc else [])]  # fmt: skip
        for field in asked.fields:
            command += ["-H", field]
        said = subprocess.run(
            [*command, f"http://127.0.0.1:{port}{asked.path}"],
            capture_output=True, text=True, timeout=300, check=True,
        ).stdout  # fmt: skip
        took = [int(line.split("\t")[2]) / 1000 for line in log.read_text().splitlines()]
    rate = re.search(r"finished in [\d.]+\w+, ([\d.]+) req/s", said)
    good = re.search(r"status codes: (\d+) 2xx", said)
    size = re.search(r"traffic: .*\((\d+)\) data", said)
    if rate is None or good is None or size is None or int(good[1]) != count:
        raise SystemExit(f"not every answer was a good one:\n{said}")
    if asked.grpc and int(size[1]) != expected * count:
        raise SystemExit(f"answers of {int(size[1]) / count:.1f} bytes where {expected} are right")
    return Pressed(float(rate[1]), took)
