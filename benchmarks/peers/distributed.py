"""Jobs of several tasks beside those of others: start beside Slurm, steps and recovery beside
torchrun.

Slurm starts eight processes by ``sbatch`` and ``srun``. torchrun runs the same program as our job,
with the same rounds in the other order, and restarts its processes with ``--max-restarts``. What
is killed has imported nothing, so that the figure is the recovery alone. torchrun looks at its
processes each 0.1 s, and waits for nothing before it starts them again; the delay of our retry is
taken off. Run: ``python benchmarks/run.py peers.distributed``.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import gang
from failover import DELAY_S
from harness import (
    STAMP,
    Figure,
    Server,
    finished,
    serving,
    temporary_folder,
    train_job,
    upload,
    wheel,
)
from rounds import in_pairs, ratio

from peers import slurm
from peers.having import Absent, folder_of, version_of

START_ROUNDS, STEP_ROUNDS, RECOVERY_ROUNDS = 10, 8, 8
GANG = 4
_STEPS = 300
_STEP = f"""
import os, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
values = torch.randn(128, 256)
def step():
    optimizer.zero_grad()
    model(values).square().mean().backward()
    optimizer.step()
for _ in range({_STEPS} // 5):
    step()
dist.barrier()
begin = time.perf_counter()
for _ in range({_STEPS}):
    step()
if dist.get_rank() == 0:
    print("step", (time.perf_counter() - begin) / {_STEPS}, flush=True)
dist.destroy_process_group()
"""
_DIES = f"""
import os, signal, time
from pathlib import Path

starts = Path(os.environ.get("BENCH_FOLDER", ".")) / "starts"
with starts.open("ab") as file:
    file.write(f"{{time.clock_gettime(time.CLOCK_MONOTONIC)}}\\n".encode())
while len(starts.read_bytes().splitlines()) < {GANG}:
    time.sleep(0.001)
again = len(starts.read_bytes().splitlines()) > {GANG}
if os.environ["RANK"] == "1" and not again:
    now = time.clock_gettime(time.CLOCK_MONOTONIC)
    (starts.parent / "killed").write_text(str(now))
    os.kill(os.getpid(), signal.SIGKILL)
while len(starts.read_bytes().splitlines()) < 2 * {GANG}:
    time.sleep(0.001)
if os.environ["RANK"] == "0":
    last = max(map(float, starts.read_text().split()))
    print("recovered", last - float((starts.parent / "killed").read_text()), flush=True)
"""
"""The program kills one of its processes when all run, and tells when all have run again."""


def run() -> list[Figure]:
    figures: list[Figure] = []
    with temporary_folder() as folder, serving() as server:
        for measure, peer in ((_beside_slurm, "Slurm"), (_beside_torchrun, "torchrun")):
            try:
                figures += measure(server, folder)
            except Absent as error:
                print(f"  without {peer}: {error}")
    return figures


def _beside_slurm(server: Server, folder: Path) -> list[Figure]:
    uri = upload(server.client(), wheel(folder, STAMP))
    names = map("slurm-{}".format, range(1000))
    with slurm.cluster() as cluster:
        pairs = in_pairs(
            lambda: gang.start_seconds(server, uri, next(names)),
            lambda: cluster.gang_start_seconds(gang.TASKS),
            START_ROUNDS,
        )
    what = f"submit to the last first line, {gang.TASKS} tasks, to Slurm's sbatch and srun"
    return [ratio(what, [(1000 * ours, 1000 * theirs) for ours, theirs in pairs], 0.5, "ms")]


def _beside_torchrun(server: Server, folder: Path) -> list[Figure]:
    torchrun = folder_of("torch") / "bin" / "torchrun"
    client, names = server.client(), map("torchrun-{}".format, range(1000))
    steps = upload(client, wheel(folder, _STEP, "2.0"))
    dies = upload(client, wheel(folder, _DIES, "3.0"))
    (step_script := folder / "steps.py").write_text(_STEP)
    (dies_script := folder / "dies.py").write_text(_DIES)
    step_pairs = in_pairs(
        lambda: _printed_value(_log(server, steps, next(names), 2, framework="pytorch"), "step"),
        lambda: _printed_value(_by_torchrun(torchrun, 2, step_script), "step"),
        STEP_ROUNDS,
    )
    recoveries = in_pairs(
        lambda: (
            _printed_value(_log(server, dies, next(names), GANG, max_retries=1), "recovered")
            - DELAY_S
        ),
        lambda: _printed_value(_by_torchrun(torchrun, GANG, dies_script), "recovered"),
        RECOVERY_ROUNDS,
    )
    version = version_of("torch")
    return [
        ratio(
            f"step of two tasks of PyTorch {version}, to torchrun",
            [(1e6 * ours, 1e6 * theirs) for ours, theirs in step_pairs],
            1.02,
            "us",
        ),
        ratio(
            f"recovery of a gang of {GANG}, to torchrun {version}",
            [(1000 * ours, 1000 * theirs) for ours, theirs in recoveries],
            1.0,
            "ms",
        ),
    ]


def _log(server: Server, uri: str, name: str, tasks: int, **fields: Any) -> str:
    """Run a job of PyTorch's recipe to its end; returns its log."""
    defaults = {"framework": "python", "memory_limit": "400M", "worker_count": tasks}
    job = replace(train_job(name, uri), recipe="pytorch", **{**defaults, **fields})
    calls = server.calls()
    ended = finished(calls, calls.submit(job))
    with calls.log(ended.name) as log:
        return log.read().decode()


def _by_torchrun(torchrun: Path, tasks: int, script: Path) -> str:
    """The same program by torchrun; returns what it printed."""
    with temporary_folder() as folder:
        command = [
            str(torchrun),
            "--standalone",
            f"--nproc-per-node={tasks}",
            "--max-restarts=1",
            str(script),
        ]
        variables = {"PATH": f"{torchrun.parent}:{os.defpath}", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            command,
            env={**variables, "BENCH_FOLDER": str(folder), "HOME": str(folder)},
            capture_output=True,
            cwd=folder,
            timeout=120,
            check=False,
        )
    if done.returncode:
        raise Absent(f"torchrun failed: {done.stderr.decode()[-300:]}")
    return done.stdout.decode()


def _printed_value(log: str, word: str) -> float:
    found = re.search(rf"{word} ([0-9.e-]+)", log)
    if found is None:
        raise SystemExit(f"nobody told of {word}:\n{log}")
    return float(found[1])


if __name__ == "__main__":
    began = time.monotonic()
    for figure in run():
        print(figure)
    print(f"{time.monotonic() - began:.0f} s")
