"""Submit to the first line of user code, jobs a second and memory at rest: ours beside those of others.

What they give differs: Parsl and Dask hand a function to a process that lives on (no record, no isolation, no log);
Slurm, Ray Jobs and MLflow Projects start a process for each job, as we do, which has a sandbox and a record on disk
besides. Run: ``python benchmarks/run.py peers.jobs``.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from pathlib import Path

import job_rate
import job_start
from harness import STAMP, Figure, median, serving, temporary_folder, upload, wheel
from load.machine import memory_mb

from cloud_ml.engines.local import proctree
from peers import slurm
from peers.having import Absent, folder_of, version_of

ROUNDS, JOBS = 15, 60
FEW = {"ray": (3, 4), "mlflow": (5, 6)}
"""Of those that take a second for one, fewer are enough."""
NAMES = {"parsl": "Parsl", "dask": "Dask", "ray": "Ray Jobs", "mlflow": "MLflow Projects"}
_LIMIT_S = 240.0


def run() -> list[Figure]:
    start, rate, memory = _ours()
    found: list[tuple[str, float, float, float]] = []
    for peer, name in NAMES.items():
        try:
            found.append((f"{name} {_version(peer)}", *_theirs(peer)))
        except Absent as error:
            print(f"  without {name}: {error}")
    try:
        rows, version = slurm.measure(ROUNDS, 10)
        found += [(f"{name} {version}", *row) for name, *row in rows]
    except Absent as error:
        print(f"  without Slurm: {error}")
    figures = []
    for name, their_start, their_rate, their_memory in found:
        figures += [
            Figure("submit to first line of user code", start, "ms", 40, their_start, name),
            Figure("jobs per second, two at a time", rate, "jobs/s", 50, their_rate, name, least=True),
            Figure("memory (PSS) at rest", memory, "MB", 120, their_memory, name),
        ]
    return sorted(figures, key=lambda figure: figure.what)


def _ours() -> tuple[float, float, float]:
    with temporary_folder() as folder, serving(CLOUDML_CONTROLLER_MAX_RUNNING_JOBS=2) as server:
        client = server.client()
        starts = job_start.measure(server, upload(client, wheel(folder, STAMP)), "peer", ROUNDS)
        (folder / "rate").mkdir()
        rate, _ = job_rate.jobs_per_second(server, upload(client, wheel(folder / "rate", "pass\n")), JOBS)
        time.sleep(2)  # what follows an end is not rest
        return median(starts.totals), rate, memory_mb(server.tree)


def _version(peer: str) -> str:
    folder_of(peer)
    return version_of(peer)


def _theirs(peer: str) -> tuple[float, float, float]:
    rounds, jobs = FEW.get(peer, (ROUNDS, JOBS))
    driver = Path(__file__).with_name("driver.py")
    command = [str(folder_of(peer) / "bin" / "python"), str(driver), peer, str(rounds), str(jobs)]
    with temporary_folder() as folder:
        environment = {"HOME": str(folder), "TMPDIR": str(folder), "PATH": f"{Path(command[0]).parent}:/usr/bin:/bin"}
        with (folder / "said").open("wb") as said, subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, cwd=folder, env=environment,
            start_new_session=True,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            timer = _killer(process)
            try:
                line = next((one for one in process.stdout if one.startswith(b'{"starts"')), b"")
                pids = [process.pid, *proctree.descendants(process.pid)]
                memory = memory_mb(pids)
                with contextlib.suppress(BrokenPipeError):
                    process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                pass
            finally:
                timer.cancel()
                for pid in (process.pid, *pids):
                    with contextlib.suppress(ProcessLookupError):
                        proctree.send(pid, 9)
        if not line:
            raise Absent((folder / "said").read_text(errors="replace")[-300:].strip() or "it said nothing")
    document = json.loads(line)
    return median(document["starts"]), document["rate"], memory


def _killer(process: subprocess.Popen[bytes]):  # type: ignore[no-untyped-def]
    import threading

    timer = threading.Timer(_LIMIT_S, process.kill)
    timer.start()
    return timer


if __name__ == "__main__":
    for figure in run():
        print(figure)
