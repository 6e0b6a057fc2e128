"""Jobs per second over their whole life, two at a time, beside bare sandboxes two at a time.

Run: ``python benchmarks/job_rate.py``.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness import (
    Figure,
    Server,
    fenced,
    finished,
    serving,
    temporary_folder,
    train_job,
    upload,
    wheel,
)

JOBS, SPAWNS = 150, 200
_TICKS = os.sysconf("SC_CLK_TCK")


def jobs_per_second(server: Server, uri: str, jobs: int = JOBS) -> tuple[float, float]:
    """The rate, and the CPU seconds of everything that one job took."""
    calls = server.calls()
    for number in range(5):
        finished(calls, calls.submit(train_job(f"warm-{number}", uri)))
    before, start = cpu_seconds(server.tree), time.monotonic()
    submitted = [calls.submit(train_job(f"job-{number}", uri)) for number in range(jobs)]
    for job in submitted:
        finished(calls, job)
    elapsed = time.monotonic() - start
    return jobs / elapsed, (cpu_seconds(server.tree) - before) / jobs


def spawns_per_second(command: list[str], spawns: int = SPAWNS) -> float:
    def spawn(_: int) -> None:
        subprocess.run(command, check=True, env={}, cwd="/")

    start = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(spawn, range(spawns)))
    return spawns / (time.monotonic() - start)


def cpu_seconds(pids: list[int]) -> float:
    """What the processes and all their children that have ended have used.

    A supervisor lives on for the next job: what it has used is nowhere else yet.
    """
    total = 0
    for pid in pids:
        with contextlib.suppress(
            FileNotFoundError, ProcessLookupError
        ):  # it has ended, so its parent has its time
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
            total += sum(int(field) for field in fields[11:15])
    return total / _TICKS


def run() -> list[Figure]:
    settings = {"CLOUDML_CONTROLLER_MAX_RUNNING_JOBS": 2}
    with temporary_folder() as folder, serving(**settings) as server:
        uri = upload(server.client(), wheel(folder, "pass\n"))
        rate, cpu = jobs_per_second(server, uri)
        floor = spawns_per_second(fenced())
    return [
        Figure(
            "jobs per second, two at a time", rate, "jobs/s", 50, floor, "sandboxes/s", least=True
        ),
        Figure("CPU of one job, its whole life", cpu, "s", 0.03),
    ]


if __name__ == "__main__":
    for figure in run():
        print(figure)
