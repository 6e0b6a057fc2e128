"""From sending the POST to the first line after the import of a framework, with and without an
interpreter that has imported it ahead.

The reference is the same job of the same trainer on a server without ``engine.zygotes``, in the
same minute. Run:
``python benchmarks/job_zygote.py [scikit-learn tensorflow pytorch]``; each is installed at first.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path

from harness import (
    Figure,
    Server,
    finished,
    median,
    serving,
    temporary_folder,
    train_job,
    upload,
    wheel,
)

from cloud_ml.models.jobs.job import Job

ROUNDS = 5
_FIRST_STEPS = {
    "scikit-learn": "from sklearn.linear_model import LogisticRegression as M; M().fit([[0.0], "
    "[1.0]], [0, 1])",
    "tensorflow": "import tensorflow as tf; v = tf.Variable(1.0); v.assign_sub(0.1)",
    "pytorch": "import torch; w = torch.ones(2, requires_grad=True); (w * w).sum().backward()",
}
_PRINT_TIME = "import time; print('\\n', time.clock_gettime(time.CLOCK_MONOTONIC), flush=True)\n"


def measure(server: Server, folder: Path, framework: str, *, ahead: bool) -> list[float]:
    """Milliseconds of each job, the first of which, that installs and imports, is not counted."""
    calls, client, times = server.calls(), server.client(), []
    uri = upload(client, wheel(folder, f"{_FIRST_STEPS[framework]}\n{_PRINT_TIME}"))
    for number in range(ROUNDS + 1):
        job = replace(train_job(f"{framework}-{number}", uri), framework=framework)
        begun = time.clock_gettime(time.CLOCK_MONOTONIC)
        ended = finished(calls, calls.submit(job))
        with calls.log(ended.name) as log:
            line = float(log.read().splitlines()[-1])
        if number:
            _check(ended, ahead=ahead)
            times.append(1000 * (line - begun))
        if ahead:
            _wait_for_imports(server)
    return times


def _check(job: Job, *, ahead: bool) -> None:
    if ("imported" in job.stages) != ahead:
        raise SystemExit(f"{job.name} did not start as it should: {job.stages}")


def _wait_for_imports(server: Server) -> None:
    """Until an interpreter waits, as it does for a person who reads what a job has printed."""
    root = server.data / "engine"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with socket.socket(socket.AF_UNIX) as spawner:
            here = os.open(root, os.O_PATH)
            spawner.connect(f"/proc/self/fd/{here}/spawner.sock")
            os.close(here)
            spawner.sendall(
                json.dumps({"token": (root / "spawner.token").read_text()}).encode() + b"\n"
            )
            if json.loads(spawner.makefile().readline())["zygotes"]:
                return
        time.sleep(0.2)
    raise SystemExit(f"nothing has imported ahead: {(root / 'spawner.log').read_text()[-2000:]}")


def run(frameworks: tuple[str, ...] = ("scikit-learn", "tensorflow")) -> list[Figure]:
    figures = []
    for framework in frameworks:
        with temporary_folder() as folder:
            found = {}
            for most in (0, 1):
                with serving(CLOUDML_ENGINE_ZYGOTES=most) as server:
                    found[most] = measure(server, folder, framework, ahead=bool(most))
        what = f"submit to the first step of {framework}"
        note = f"least {min(found[1]):.0f} and {min(found[0]):.0f}"
        figures.append(
            Figure(
                what,
                median(found[1]),
                "ms",
                300.0,
                median(found[0]),
                "ms importing itself",
                note=note,
            )
        )
    return figures


if __name__ == "__main__":
    for figure in run(tuple(sys.argv[1:]) or ("scikit-learn", "tensorflow")):
        print(figure)
