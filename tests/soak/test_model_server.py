"""A model server that is asked a million times and reloaded a thousand times holds on to
nothing.
"""

from __future__ import annotations

import os
import re
import urllib.request
from pathlib import Path

import psutil
import pytest

from soak.model_requests import BLOCK, Asker
from support.server import eventually
from support.serving import Running, model_server, save_linear

REQUESTS = int(os.environ.get("SERVING_REQUESTS", "40000"))
RELOADS = int(os.environ.get("SERVING_RELOADS", "60"))
MORE_MB = 6.0
"""What may come and go: the allocator's own pieces."""


def memory_mb(running: Running) -> float:
    """What it holds for itself: its share of libraries grows when another process that has them
    ends.
    """
    rollup = Path(f"/proc/{running.process.pid}/smaps_rollup").read_text()
    return int(re.findall(r"^Pss_Anon: +(\d+) kB", rollup, re.MULTILINE)[0]) / 1024


def held(running: Running) -> tuple[int, int]:
    """Descriptors and threads."""
    process = psutil.Process(running.process.pid)
    return process.num_fds(), process.num_threads()


@pytest.mark.timeout(3600)
def test_requests_of_all_kinds_leave_nothing(tmp_path: Path) -> None:
    save_linear(tmp_path / "1")
    with model_server("--model_name", "linear", "--model_base_path", str(tmp_path)) as running:
        asker = Asker(running.port)
        figures: list[tuple[int, float]] = []
        every = max(2 * 10 * BLOCK, REQUESTS // 10)
        while (
            asker.counts.requests < REQUESTS + every
        ):  # the first part is to fill what is kept on purpose
            until = asker.counts.requests + every
            while asker.counts.requests < until:
                asker.http2(10)
                asker.http1(10)
            figures.append((asker.counts.requests, memory_mb(running)))
            if len(figures) == 1:
                before = held(running)
        after = held(running)
        print(asker.counts, [(count, round(mb, 1)) for count, mb in figures], before, after)
    assert asker.counts.refused > REQUESTS // 10
    assert asker.counts.cancelled > REQUESTS // 100
    assert figures[-1][1] <= figures[0][1] + MORE_MB, figures
    assert after[0] <= before[0] + 2  # connections that were left a moment ago
    assert after[1] <= before[1]


@pytest.mark.timeout(3600)
def test_reloads_leave_nothing(tmp_path: Path) -> None:
    save_linear(tmp_path / "1")
    flags = ("--model_name", "linear", "--model_base_path", str(tmp_path), "--allow_model_control")
    with model_server(*flags, "--version_settle_seconds", "0") as running:

        def post(path: str, body: bytes = b"") -> bytes:
            request = urllib.request.Request(
                f"http://127.0.0.1:{running.port}{path}", body, method="POST"
            )
            with urllib.request.urlopen(request, timeout=30) as answer:
                return bytes(answer.read())

        figures: list[float] = []
        for number in range(RELOADS + RELOADS // 10 + 1):
            post("/v2/repository/models/linear/unload")
            post("/v2/repository/models/linear/load")
            assert (
                post("/v1/models/linear:predict", b'{"instances": [1.0]}')
                == b'{"predictions":[12.0]}'
            )
            if number % max(1, RELOADS // 10) == 0:
                figures.append(memory_mb(running))
            if number == RELOADS // 10:
                before = held(running)
        print([round(mb, 1) for mb in figures], before, held(running))
        eventually(
            lambda: held(running) <= before,
            "no more descriptors and threads than before",
            limit_s=10,
        )
    assert figures[-1] <= figures[1] + MORE_MB, figures
