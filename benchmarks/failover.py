"""How soon what was killed runs again, and what a supervisor needs for each task.

From SIGKILL to the first line of the new process: of a task alone, and of a gang of four, whose
last task counts. The delay that a retry waits is taken off. Beside it stands the start of the same
line in a bare sandbox, in the same rounds. Run: ``python benchmarks/run.py failover``.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness import (
    STAMP,
    Figure,
    Server,
    fenced,
    high,
    median,
    serving,
    stamped,
    temporary_folder,
    train_job,
    upload,
    wheel,
)
from idle import memory_mb
from rounds import interval

from cloud_ml.domain.workloads.recovery import STAGES
from cloud_ml.engines.local.processes import proctree
from cloud_ml.models.jobs.restart import Restart, RestartRule
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.sdk.jobs.handles import JobHandle

TASKS, TASK_ROUNDS = 6, 6
"""Each task is killed once: only its first restart waits for nothing."""
GANG, GANG_ROUNDS = 4, 12
DELAY_S = 1.0
"""What the first retry of a job waits."""
FEW, MANY, MEMORY_ROUNDS = 2, 18, 3
_WAITS = (
    "import os, signal, time\n"
    "print('runs', time.clock_gettime(time.CLOCK_MONOTONIC), flush=True)\n"
    "signal.pause()\n"
)
_REST = "to the first line"
"""What comes after the stages that the platform measures: Python starts, and says its line."""
_LINE = re.compile(r"^\[worker-(\d+)\] runs ([0-9.]+)$")


@dataclass
class Recoveries:
    """Milliseconds of all that were measured, as seen from outside and as the platform tells."""

    totals: list[float] = field(default_factory=list)
    stages: dict[str, list[float]] = field(default_factory=dict)
    floors: list[float] = field(default_factory=list)

    def add(self, total_s: float, stages: dict[str, float]) -> None:
        self.totals.append(1000 * total_s)
        parts = {name: 1000 * stages.get(name, 0.0) for name in STAGES}
        parts[_REST] = self.totals[-1] - sum(parts.values())
        for name, value in parts.items():
            self.stages.setdefault(name, []).append(value)
        self.floors.append(stamped(fenced(STAMP)))

    def figures(self, what: str, p50: float, p95: float) -> list[Figure]:
        split = ", ".join(f"{name} {median(values):.1f}" for name, values in self.stages.items())
        print(f"  {what}: {split} (ms, medians)")
        least, most = interval(self.totals)
        ratios = [ours / floor for ours, floor in zip(self.totals, self.floors, strict=True)]
        first, last = interval(ratios)
        floor = median(self.floors)
        note = f"{least:.0f} to {most:.0f}; {median(ratios):.2f} x bubblewrap, {first:.2f} to {last:.2f}"
        return [
            Figure(f"{what}, p50", median(self.totals), "ms", p50, floor, "bubblewrap", note=note),
            Figure(f"{what}, p95", high(self.totals, 0.95), "ms", p95),
        ]


class Watched:
    """A job whose tasks print a line when they start, and wait."""

    def __init__(self, server: Server, job: TrainJob) -> None:
        self.handle: JobHandle = server.client().submit_train_job(job)
        self._lines = self._read()

    def _read(self) -> Generator[tuple[str, float]]:
        rest = ""
        with closing(self.handle.logs(follow=True)) as chunks:
            for chunk in chunks:
                *lines, rest = (rest + chunk.decode()).split("\n")
                for line in lines:
                    if found := _LINE.match(line):
                        yield found[1], float(found[2])

    def starts(self, count: int) -> dict[str, float]:
        """The next starts of so many tasks."""
        return dict(next(self._lines) for _ in range(count))

    def kill(self, index: str) -> float:
        """Kill the program of a task; returns when."""
        pid = _program_of(self.handle.uid, self.handle.refresh().attempt, index)
        now = time.clock_gettime(time.CLOCK_MONOTONIC)
        os.kill(pid, signal.SIGKILL)
        return now

    def stages(self, count: int) -> dict[str, float]:
        """Those of the last recovery, as soon as ``count`` of them are known."""
        job = self.handle.refresh()
        while job.recoveries is None or job.recoveries.count < count:
            if job.finished:
                raise SystemExit(f"{job.name} {job.phase}: {job.message}")
            job = self.handle.await_change()
        return dict(job.recoveries.last.stages)

    def end(self) -> None:
        self._lines.close()
        self.handle.cancel(grace="0s")
        self.handle.wait()


def of_tasks(server: Server, uri: str) -> Recoveries:
    """A task that is killed while the others run on."""
    found = Recoveries()
    rules = [RestartRule(action="restart-task")]
    for number in range(TASK_ROUNDS):
        job = _job(f"tasks-{number}", uri, TASKS, restart=Restart(rules=rules))
        watched = Watched(server, job)
        for killed, index in enumerate(sorted(watched.starts(TASKS)), 1):
            at = watched.kill(index)
            again = watched.starts(1)[index]
            found.add(again - at, watched.stages(killed))
        watched.end()
    return found


def of_gangs(server: Server, uri: str) -> Recoveries:
    """A gang all of whose tasks start again because one was killed."""
    found = Recoveries()
    for number in range(GANG_ROUNDS):
        watched = Watched(server, _job(f"gang-{number}", uri, GANG, max_retries=1))
        watched.starts(GANG)
        at = watched.kill("1")
        last = max(watched.starts(GANG).values())
        found.add(last - at - DELAY_S, watched.stages(1))
        watched.end()
    return found


def memory_for_each_task(server: Server, name: str, uri: str) -> float:
    """Megabytes that a supervisor needs for each further task."""
    many, few = (_supervisor_mb(server, f"{name}-{tasks}", uri, tasks) for tasks in (MANY, FEW))
    return (many - few) / (MANY - FEW)


def run() -> list[Figure]:
    with temporary_folder() as folder, serving() as server:
        uri = upload(server.client(), wheel(folder, _WAITS))
        tasks, gangs = of_tasks(server, uri), of_gangs(server, uri)
        memory = [
            memory_for_each_task(server, f"memory-{number}", uri) for number in range(MEMORY_ROUNDS)
        ]
    return [
        *tasks.figures("recovery of a killed task", 150, 400),
        *gangs.figures(f"recovery of a gang of {GANG}", 300, 800),
        Figure("memory (PSS) of a supervisor for each further task", median(memory), "MB", 1),
    ]


def _job(name: str, uri: str, tasks: int, **fields: Any) -> TrainJob:
    return replace(
        train_job(name, uri),
        worker_count=tasks,
        recipe="cluster",
        framework="python",
        memory_limit="100M",
        **fields,
    )


def _supervisor_mb(server: Server, name: str, uri: str, tasks: int) -> float:
    watched = Watched(server, _job(name, uri, tasks))
    watched.starts(tasks)
    pid = _program_of(watched.handle.uid, 1, "0")
    while (parent := _parent(pid)) not in (server.spawner(), 0, 1):
        pid = parent
    used = memory_mb([pid])
    watched.end()
    return used


def _program_of(uid: str, attempt: int, index: str) -> int:
    """The process that runs the program of a task: the innermost of those that are its own."""
    own = f"CLOUDML_INDEX={index}".encode()
    found = []
    for pid in proctree.find_marked(f"CLOUDML_GANG={uid}.{attempt}"):
        folder = Path(f"/proc/{pid}")
        variables = (folder / "environ").read_bytes().split(b"\0")
        if own in variables and b"trainer.task" in (folder / "cmdline").read_bytes().split(b"\0"):
            found.append(pid)
    if not found:
        raise SystemExit(f"there is no process of worker-{index}")
    return max(found)


def _parent(pid: int) -> int:
    found = re.search(r"^PPid:\s+(\d+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(found[1]) if found else 0


if __name__ == "__main__":
    for figure in run():
        print(figure)
