"""Submit to the first line of user code, jobs a second and memory at rest: ours beside those of
others.

What they give differs: Parsl and Dask hand a function to a process that lives on (no record, no
isolation, no log); Slurm, Ray Jobs and MLflow Projects start a process for each job, as we do,
which has a sandbox and a record on disk besides. Run: ``python benchmarks/run.py peers.jobs``.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from pathlib import Path

import job_rate
import job_start
from harness import STAMP, Figure, median, serving, temporary_folder, upload, wheel
from load.machine import memory_mb

from cloud_ml.engines.local.processes import proctree
from peers import slurm
from peers.having import Absent, folder_of, version_of

ROUNDS, JOBS = 15, 60
FEW = {"ray": (3, 4), "mlflow": (3, 4)}
"""Of those that take a second for one, fewer are enough."""
NAMES = {"parsl": "Parsl", "dask": "Dask", "ray": "Ray Jobs", "mlflow": "MLflow Projects"}
LIMIT_S = float(os.environ.get("BENCH_PEER_LIMIT_S", "90"))
"""So long may one of them take: a slow one does not cost the others their figures."""
_FAREWELL_S = 15.0


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
            Figure(
                "jobs per second, two at a time", rate, "jobs/s", 50, their_rate, name, least=True
            ),
            Figure("memory (PSS) at rest", memory, "MB", 120, their_memory, name),
        ]
    return sorted(figures, key=lambda figure: figure.what)


def _ours() -> tuple[float, float, float]:
    with temporary_folder() as folder, serving(CLOUDML_CONTROLLER_MAX_RUNNING_JOBS=2) as server:
        client = server.client()
        starts = job_start.measure(server, upload(client, wheel(folder, STAMP)), "peer", ROUNDS)
        (folder / "rate").mkdir()
        rate, _ = job_rate.jobs_per_second(
            server, upload(client, wheel(folder / "rate", "pass\n")), JOBS
        )
        time.sleep(2)  # what follows an end is not rest
        return median(starts.totals), rate, memory_mb(server.tree)


def _version(peer: str) -> str:
    folder_of(peer)
    return version_of(peer)


def _theirs(peer: str) -> tuple[float, float, float]:
    """Its figures.

    Raises:
        Absent: It gave none within ``LIMIT_S``.
    """
    rounds, jobs = FEW.get(peer, (ROUNDS, JOBS))
    driver = Path(__file__).with_name("driver.py")
    command = [str(folder_of(peer) / "bin" / "python"), str(driver), peer, str(rounds), str(jobs)]
    with temporary_folder() as folder:
        environment = {
            "HOME": str(folder),
            "TMPDIR": str(folder),
            "PATH": f"{Path(command[0]).parent}:/usr/bin:/bin",
        }
        with (folder / "output").open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                cwd=folder,
                env=environment,
                start_new_session=True,
            )
        line, memory = b"", 0.0
        try:
            line = _first_line(process)
            memory = memory_mb([process.pid, *proctree.descendants(process.pid)])
        finally:
            _end(process)
        if not line:
            words = (folder / "output").read_text(errors="replace")[-300:].strip()
            raise Absent(
                words
                if process.returncode not in (None, -9)
                else f"no figure within {LIMIT_S:.0f} s; {words}"
            )
    document = json.loads(line)
    return median(document["starts"]), document["rate"], memory


def _first_line(process: subprocess.Popen[bytes]) -> bytes:
    """The line with the figures; nothing if it does not come in time."""
    assert process.stdout is not None
    deadline, output = time.monotonic() + LIMIT_S, b""
    while b"\n" not in output and (left := deadline - time.monotonic()) > 0:
        if select.select([process.stdout], [], [], left)[0]:
            if not (more := os.read(process.stdout.fileno(), 65536)):
                return b""
            output += more
    return output if output.endswith(b"\n") else b""


def _end(process: subprocess.Popen[bytes]) -> None:
    """By the end of its input; what does not leave then is made to."""
    assert process.stdin is not None
    assert process.stdout is not None
    below = list(proctree.descendants(process.pid))
    process.stdin.close()
    try:
        process.wait(_FAREWELL_S)
    except subprocess.TimeoutExpired:
        below += proctree.descendants(process.pid)
        process.kill()
        process.wait()
    process.stdout.close()
    for pid in below:
        proctree.send(pid, signal.SIGKILL)


if __name__ == "__main__":
    for figure in run():
        print(figure)
