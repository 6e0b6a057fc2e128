"""What the platform needs for the output of eight tasks, beside that of eight jobs of one task.

All print the same, 20 MB/s together, while nobody follows. A gang has a log of all its tasks beside
the log of each. The processor time is that of server, spawner and supervisors, without the user's
code. Run: ``python benchmarks/run.py gang_log``.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from harness import Figure, Server, serving, temporary_folder, train_job, upload, wheel
from load.machine import cpu_seconds
from rounds import in_pairs, ratio

from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.sdk.jobs.handles import JobHandle

TASKS, ROUNDS = 8, 6
BYTES_A_SECOND = 20_000_000 // TASKS
SECONDS = 4.0
"""How long is measured, in the midst of the output."""
_SETTLES_S = 1.0
_FIRST = b"begins\n"
_PRINTS = f"""
import os, time
line = b"step of the training, loss 0.123456, accuracy 0.98, time 0.0123\\n"
os.write(1, b"begins\\n")
begin, printed = time.monotonic(), 0
while True:
    due = int((time.monotonic() - begin) * {BYTES_A_SECOND}) - printed
    if due >= len(line):
        chunk = line * (due // len(line))
        printed += len(chunk)
        while chunk:
            chunk = chunk[os.write(1, chunk):]
    time.sleep(0.01)
"""


def run() -> list[Figure]:
    with (
        temporary_folder() as folder,
        serving(CLOUDML_CONTROLLER_MAX_RUNNING_JOBS=2 * TASKS) as server,
    ):
        uri = upload(server.client(), wheel(folder, _PRINTS))
        numbers = itertools.count()
        pairs = in_pairs(
            lambda: _of_a_gang(server, uri, next(numbers)),
            lambda: _of_single_jobs(server, uri, next(numbers)),
            ROUNDS,
        )
    in_ms = [(1000 * ours, 1000 * single) for ours, single in pairs]
    what = f"CPU for 20 MB/s from {TASKS} tasks, to {TASKS} jobs of one"
    return [ratio(what, in_ms, 1.2, "ms a second")]


def _of_a_gang(server: Server, uri: str, number: int) -> float:
    job = replace(
        train_job(f"log-{number}", uri),
        worker_count=TASKS,
        recipe="cluster",
        framework="python",
        memory_limit="100M",
    )
    with _running(server, [job]):
        return _cpu_of_platform(server)


def _of_single_jobs(server: Server, uri: str, number: int) -> float:
    jobs = [
        replace(train_job(f"log-{number}-{index}", uri), framework="python", memory_limit="100M")
        for index in range(TASKS)
    ]
    with _running(server, jobs):
        return _cpu_of_platform(server)


@contextmanager
def _running(server: Server, jobs: Sequence[TrainJob]) -> Iterator[None]:
    """Jobs all of whose tasks print; they are ended behind the block."""
    client = server.client()
    handles = [client.submit_train_job(job) for job in jobs]
    for handle in handles:
        _await_output(handle, TASKS // len(handles))
    time.sleep(_SETTLES_S)
    yield
    for handle in handles:
        handle.cancel(grace="0s")
    for handle in handles:
        handle.wait()


def _await_output(handle: JobHandle, tasks: int) -> None:
    """Wait until so many tasks print."""
    begun = 0
    with closing(handle.logs(follow=True)) as chunks:
        for chunk in chunks:
            begun += chunk.count(_FIRST)
            if begun >= tasks:
                return
    raise SystemExit(f"{handle.name} has ended: {handle.refresh().message}")


def _cpu_of_platform(server: Server) -> float:
    """Seconds that server, spawner and supervisors use for what is printed in a second.

    On a busy machine the tasks may print less than they want. So it counts what was read.
    """
    supervisors = _children(server.spawner())
    pids = [*server.pids, *supervisors]
    cpu, read = cpu_seconds(pids), _read_bytes(supervisors)
    time.sleep(SECONDS)
    cpu, read = cpu_seconds(pids) - cpu, _read_bytes(supervisors) - read
    return cpu * TASKS * BYTES_A_SECOND / read


def _read_bytes(pids: Sequence[int]) -> int:
    found = 0
    for pid in pids:
        first, *_ = Path(f"/proc/{pid}/io").read_text().splitlines()
        found += int(first.removeprefix("rchar: "))
    return found


def _children(pid: int | None) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


if __name__ == "__main__":
    for figure in run():
        print(figure)
