"""What a server costs that has nothing to do, and how soon it answers after its start.

Run: ``python benchmarks/idle.py``.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

import seed
from harness import STAMP, Figure, Server, finished, temporary_folder, train_job, upload, wheel

SECONDS, STARTS, JOBS = 20.0, 3, 10_000


def memory_mb(pids: list[int]) -> float:
    """Proportional set size: shared pages count once."""
    kilobytes = 0
    for pid in pids:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        kilobytes += int(re.findall(r"^Pss: +(\d+) kB", rollup, re.MULTILINE)[0])
    return kilobytes / 1024


def busy_seconds(pids: list[int]) -> float:
    """Time on a core of all threads that live, in nanoseconds of the scheduler: ticks are too
    coarse.
    """
    files = [file for pid in pids for file in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


def wakeups(pids: list[int]) -> int:
    """How often any thread has gone to sleep so far."""
    found = 0
    for pid in pids:
        for status in Path(f"/proc/{pid}/task").glob("*/status"):
            found += int(
                re.findall(r"^voluntary_ctxt_switches:\t(\d+)", status.read_text(), re.MULTILINE)[0]
            )
    return found


def restart(server: Server) -> float:
    """Seconds until it answers, the best of a few: what the machine does besides is not ours."""
    times = []
    for _ in range(STARTS):
        server.stop()
        times.append(server.start().ready_s)
    return min(times)


def come_back(server: Server) -> float:
    """Seconds from ``kill -9`` and the start after it until it answers, the longest of a few."""
    times = []
    for _ in range(STARTS):
        server.crash()
        times.append(server.start().ready_s)
    return max(times)


def run() -> list[Figure]:
    with temporary_folder() as folder:
        server = Server(folder)
        try:
            server.start()
            client, calls = server.client(), server.calls()
            uri = upload(client, wheel(folder, STAMP))
            finished(calls, calls.submit(train_job("first", uri)))
            time.sleep(2)  # what follows a start and an end is not idleness
            pids = server.tree
            cpu, woken = busy_seconds(pids), wakeups(pids)
            time.sleep(SECONDS)
            share = 100 * (busy_seconds(pids) - cpu) / SECONDS
            often = (wakeups(pids) - woken) / SECONDS
            memory = memory_mb(pids)
            empty = restart(server)
            server.stop()
            seed.copies(server.data / "state.db", "first", range(JOBS))
            full = restart(server)
            back = come_back(server)
        finally:
            server.stop()
    return [
        Figure("memory (PSS) of an idle server, its whole tree", memory, "MB", 120),
        Figure(
            "CPU of the idle server, share of a core",
            share,
            "%",
            0.1,
            note=f"{often:.1f} wake-ups/s",
        ),
        Figure("start until it answers, hardly any job", empty, "s", 1.5),
        Figure(f"start until it answers, {JOBS} jobs", full, "s", 3),
        Figure(
            f"start until it answers after kill -9, {JOBS} jobs",
            back,
            "s",
            3,
            note="the longest of three",
        ),
    ]


if __name__ == "__main__":
    for figure in run():
        print(figure)
