"""How long the environment of a job takes: met before, a new wheel, a new source tree.

Read from the stages of real jobs. Run: ``python benchmarks/job_environments.py``.
"""

from __future__ import annotations

from pathlib import Path

from harness import (
    Figure,
    finished,
    high,
    median,
    serving,
    temporary_folder,
    train_job,
    tree,
    upload,
    wheel,
)

from cloud_ml.client import CloudMlClient
from cloud_ml.models.jobs.job import Job
from cloud_ml.sdk.jobs.calls import JobCalls

WARM_UPS, ROUNDS = 3, 20
SETUPS = {"setup": "'1.0'", "run": "'.'.join('10')", "plain": ""}
"""The version in a ``setup.py``, which is read if it is a constant, and run otherwise."""


def environment_ms(job: Job) -> float:
    """From the claim to the environment that is ready."""
    return 1000 * (job.stages["environment"] - job.stages["claimed"]).total_seconds()


def resubmit(calls: JobCalls, uri: str) -> list[float]:
    jobs = [
        finished(calls, calls.submit(train_job(f"again-{n}", uri)))
        for n in range(WARM_UPS + ROUNDS)
    ]
    return [environment_ms(job) for job in jobs[WARM_UPS:]]


def fresh(client: CloudMlClient, calls: JobCalls, folder: Path, kind: str) -> list[float]:
    """Trainers that differ in one line each."""
    found = []
    for number in range(WARM_UPS + ROUNDS):
        place = folder / f"{kind}-{number}"
        place.mkdir()
        source = f"print({number})\n"
        trainer = (
            wheel(place, source)
            if kind == "wheel"
            else tree(place / "tree", source, setup=SETUPS[kind])
        )
        job = finished(calls, calls.submit(train_job(f"{kind}-{number}", upload(client, trainer))))
        found.append(environment_ms(job))
    return found[WARM_UPS:]


def run() -> list[Figure]:
    with temporary_folder() as folder, serving() as server:
        client, calls = server.client(), server.calls()
        met = resubmit(calls, upload(client, wheel(folder, "pass\n")))
        new = {kind: fresh(client, calls, folder, kind) for kind in ("wheel", *SETUPS)}
    rows = [
        ("environment that was met before", met, 5.0),
        ("environment of a new wheel", new["wheel"], 5.0),
        ("environment of a new tree with setup.py", new["setup"], 150.0),
        ("environment of a new tree whose setup.py must run", new["run"], 150.0),
        ("environment of a new tree without a build", new["plain"], 150.0),
    ]
    return [
        Figure(what, median(times), "ms", target, note=f"p99 {high(times):.1f}")
        for what, times, target in rows
    ]


if __name__ == "__main__":
    for figure in run():
        print(figure)
