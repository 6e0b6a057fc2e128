"""From sending the POST to the first line of user code, with the stages on the way.

The floor is the same line of Python behind a bare spawn, in bubblewrap, and in bubblewrap with a
control group made ahead. Run: ``python benchmarks/job_start.py``.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from harness import (  # fmt: skip
    STAMP,
    Figure,
    Server,
    bare,
    fenced,
    finished,
    high,
    median,
    serving,
    stamped,
    temporary_folder,
    train_job,
    tree,
    upload,
    wheel,
)

from cloud_ml.engines.local import cgroups
from cloud_ml.models.jobs.job import Job

WARM_UPS, ROUNDS = 5, 40
QUIET_S = 0.15
"""The client asks for nothing while the job starts: it would run beside it on the same cores."""
STAGES = ("posted", "queued", "starting", "claimed", "environment", "started", "user code")


@dataclass
class Starts:
    """All starts of one kind of trainer, in milliseconds; ``steps`` are between two stages each."""

    totals: list[float] = field(default_factory=list)
    steps: dict[str, list[float]] = field(default_factory=dict)

    def add(self, posted: tuple[float, float], job: Job, line: float) -> None:
        wall, monotonic = posted
        self.totals.append(1000 * (line - monotonic))
        moments = [wall, *map(_seconds, (job.queued_at, job.starting_at)),
                   *(_seconds(job.stages[name]) for name in ("claimed", "environment", "started")),
                   wall + line - monotonic]  # fmt: skip
        for name, before, after in zip(STAGES[1:], moments, moments[1:], strict=False):
            self.steps.setdefault(name, []).append(1000 * (after - before))

    def split(self) -> str:
        return ", ".join(f"{name} {median(values):+.1f}" for name, values in self.steps.items())


def measure(server: Server, uri: str, name: str, rounds: int = ROUNDS) -> Starts:
    """Submit one job after another, each when the one before has ended."""
    calls, starts = server.calls(), Starts()
    for number in range(WARM_UPS + rounds):
        job = train_job(f"{name}-{number}", uri)
        posted = time.time(), time.clock_gettime(time.CLOCK_MONOTONIC)
        submitted = calls.submit(job)
        time.sleep(QUIET_S)
        ended = finished(calls, submitted)
        with calls.log(ended.name) as log:
            line = float(log.read().splitlines()[-1])
        if number >= WARM_UPS:
            starts.add(posted, ended, line)
    return starts


def floors(rounds: int = ROUNDS) -> dict[str, float]:
    """Milliseconds until the same line runs without a platform, by what is around it."""
    found: dict[str, list[float]] = {"bare": [], "bubblewrap": [], "with a cgroup": []}
    with _pool() as pool:
        for _ in range(rounds):
            found["bare"].append(stamped(bare(STAMP)))
            found["bubblewrap"].append(stamped(fenced(STAMP)))
            if pool is not None:
                group = pool.take()
                found["with a cgroup"].append(stamped(fenced(STAMP), preexec_fn=group.join))
                pool.give_back(group)
                while pool.tidy():
                    pass
    return {name: median(values) for name, values in found.items() if values}


def run() -> list[Figure]:
    with temporary_folder() as folder, serving() as server:
        client = server.client()
        trainers = {
            "wheel": upload(client, wheel(folder, STAMP)),
            "source tree": upload(client, tree(folder / "tree", STAMP, setup="'1.0'")),
        }
        starts = {
            name: measure(server, uri, name.replace(" ", "-")) for name, uri in trainers.items()
        }
        floor = floors()
    print("  floors: " + ", ".join(f"{name} {value:.1f} ms" for name, value in floor.items()))
    figures = []
    for name, found in starts.items():
        print(f"  {name}: {found.split()}")
        figures.append(
            Figure(
                f"submit to first line of user code, {name}", median(found.totals), "ms",
                min(40.0, 4 * floor["bubblewrap"]), floor["bubblewrap"], "bubblewrap",
                note=f"p99 {high(found.totals):.1f}",
            )
        )  # fmt: skip
    return figures


@contextlib.contextmanager
def _pool() -> Iterator[cgroups.Pool | None]:
    hierarchy, _ = cgroups.find("cloudml-benchmark")
    pool = cgroups.Pool(hierarchy) if hierarchy else None
    try:
        if pool is not None:
            while pool.tidy():
                pass
        yield pool
    finally:
        if pool is not None:
            while pool.waiting:  # the kernel lets go of a group a moment after its last process
                pool.tidy()
                time.sleep(0.05)
            pool.close()


def _seconds(moment: datetime | None) -> float:
    assert moment is not None
    return moment.timestamp()


if __name__ == "__main__":
    for figure in run():
        print(figure)
