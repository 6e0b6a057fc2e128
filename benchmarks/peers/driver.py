"""Runs inside a peer's own environment: submits jobs one by one, then many two at a time, then
rests.

Run by ``peers.jobs`` as ``python driver.py <peer> <rounds> <jobs>``. It prints what it measured as
JSON, then waits for the end of its input with the peer at rest, so that its memory can be read.
What the peer's processes print goes elsewhere: one that outlives its parent must not keep who reads
waiting.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

STAMP = "import time; print(time.clock_gettime(time.CLOCK_MONOTONIC), flush=True)"
Submit = Callable[[], Callable[[], float]]
"""Submits a job; what it returns waits for its end and tells when its first line ran."""


def stamp() -> float:
    import time  # it is sent to a worker as it stands

    return time.clock_gettime(time.CLOCK_MONOTONIC)


@contextlib.contextmanager
def parsl() -> Iterator[Submit]:
    import parsl as peer
    from parsl.config import Config
    from parsl.executors import HighThroughputExecutor

    place = tempfile.mkdtemp(prefix="parsl-")
    executor = HighThroughputExecutor(max_workers_per_node=2, address="127.0.0.1")
    with peer.load(Config(executors=[executor], run_dir=place, usage_tracking=0)):
        app = peer.python_app(stamp)
        yield lambda: app().result


@contextlib.contextmanager
def dask() -> Iterator[Submit]:
    from dask.distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        yield lambda: client.submit(stamp, pure=False).result


@contextlib.contextmanager
def ray() -> Iterator[Submit]:
    import ray as peer
    from ray.job_submission import JobSubmissionClient

    context = peer.init(
        num_cpus=2,
        include_dashboard=True,
        log_to_driver=False,
        _temp_dir=tempfile.mkdtemp(prefix="r"),
    )
    client = JobSubmissionClient(f"http://{context.dashboard_url}")

    def submit() -> Callable[[], float]:
        name = client.submit_job(entrypoint=f'{sys.executable} -c "{STAMP}"')

        def ended() -> float:
            while not (status := client.get_job_status(name)).is_terminal():
                time.sleep(0.02)
            assert str(status) == "SUCCEEDED", client.get_job_logs(name)
            return float(client.get_job_logs(name).strip().splitlines()[-1])

        return ended

    try:
        yield submit
    finally:
        peer.shutdown()


@contextlib.contextmanager
def mlflow() -> Iterator[Submit]:
    place = pathlib.Path(tempfile.mkdtemp(prefix="mlflow-"))
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{place}/mlflow.db"
    from mlflow import projects

    (place / "project").mkdir()
    command = f"{sys.executable} stamp.py {{out}}"
    parameters = "{out: string}"
    (place / "project" / "MLproject").write_text(
        f"name: bench\nentry_points:\n  main:\n    parameters: {parameters}\n    command: "
        f"'{command}'\n"
    )
    (place / "project" / "stamp.py").write_text(
        "import sys, time; open(sys.argv[1], "
        "'w').write(str(time.clock_gettime(time.CLOCK_MONOTONIC)))"
    )

    def submit() -> Callable[[], float]:
        out = place / f"out-{time.monotonic_ns()}"
        run = projects.run(
            str(place / "project"),
            parameters={"out": str(out)},
            env_manager="local",
            synchronous=False,
        )

        def ended() -> float:
            assert run.wait()
            return float(out.read_text())

        return ended

    yield submit


PEERS: dict[str, Any] = {"parsl": parsl, "dask": dask, "ray": ray, "mlflow": mlflow}


def main() -> None:
    name, rounds, jobs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    out = os.fdopen(os.dup(1), "w")  # which no child gets
    os.dup2(2, 1)
    with PEERS[name]() as submit:
        submit()()
        submit()()
        starts = []
        for _ in range(rounds):
            began = stamp()
            starts.append(1000 * (submit()() - began))
        began = time.monotonic()
        waiting: list[Callable[[], float]] = []
        for _ in range(jobs):
            if len(waiting) == 2:
                waiting.pop(0)()
            waiting.append(submit())
        for ended in waiting:
            ended()
        rate = jobs / (time.monotonic() - began)
        print(json.dumps({"starts": starts, "rate": rate}), file=out, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
