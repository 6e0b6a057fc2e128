"""A job of several tasks beside the same processes started by hand: until all run, and while they
run.

By hand is a shell loop, for the start under bubblewrap, for the steps without anything around. One
loop runs a line of Python in a sandbox with one folder, the other the module as a task does.
Run: ``python benchmarks/run.py gang``.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from harness import (
    STAMP,
    Figure,
    Server,
    bare,
    fenced,
    finished,
    serving,
    temporary_folder,
    train_job,
    upload,
    wheel,
)
from rounds import in_pairs, ratio

TASKS, START_ROUNDS, STEP_ROUNDS = 8, 20, 12
QUIET_S = 0.3
"""The client asks for nothing while the tasks start: it would run beside them on the same cores."""
FOLDERS = 22
"""So many are bound for a task's sandbox."""
_BOUND = ("/usr", "/etc", "/opt", "/var")
_LOOP = f'for task in $(seq {TASKS}); do "$@" & done; wait'
_STEPS = 1500
_STEP = f"""
import json, os, socket, time
first = os.environ["CLOUDML_INDEX"] == "0"
host, port = json.loads(os.environ["CLOUDML_CLUSTER"])["worker"][0].rsplit(":", 1)
if first:
    peer, _ = socket.create_server(("", int(port))).accept()
else:
    while True:
        try:
            peer = socket.create_connection((host, int(port)))
            break
        except ConnectionRefusedError:
            time.sleep(0.001)
peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
gradient = bytes(1 << 14)
def step():
    total = sum(number * number for number in range(4000))
    peer.sendall(gradient)
    left = len(gradient)
    while left:
        left -= len(peer.recv(left))
for _ in range({_STEPS} // 5):
    step()
begin = time.perf_counter()
for _ in range({_STEPS}):
    step()
if first:
    print("step", (time.perf_counter() - begin) / {_STEPS}, flush=True)
"""
"""Two processes that compute, and exchange what they have after each step."""


def start_seconds(server: Server, uri: str, name: str) -> float:
    """From sending the POST until the last of eight tasks runs its first line."""
    begin = time.clock_gettime(time.CLOCK_MONOTONIC)
    log = _run(server, uri, name, TASKS, quiet_s=QUIET_S)
    lines = re.findall(r"^\[worker-\d\] ([0-9.]+)$", log, re.MULTILINE)
    if len(lines) != TASKS:
        raise SystemExit(f"{len(lines)} of {TASKS} tasks told when they started:\n{log}")
    return max(map(float, lines)) - begin


def start_seconds_by_hand(command: Sequence[str]) -> float:
    """The same by a shell loop, each process in a sandbox."""
    begin = time.clock_gettime(time.CLOCK_MONOTONIC)
    out = subprocess.run(
        ["sh", "-c", _LOOP, "sh", *command],
        stdout=subprocess.PIPE,
        check=True,
        env={"PATH": os.defpath},
        cwd="/",
    ).stdout
    return max(map(float, out.split())) - begin


def fenced_module(folder: Path) -> list[str]:
    """``python -m trainer.task`` in a sandbox with as many folders bound as a task's."""
    package = folder / "trainer"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "task.py").write_text(STAMP)
    *sandboxed, python, _, _ = fenced(STAMP)
    binds = [
        word
        for number, source in enumerate(itertools.islice(itertools.cycle(_BOUND), FOLDERS))
        for word in ("--ro-bind", source, f"{package}/{number}")
    ]
    over = ["--tmpfs", str(package), "--ro-bind", f"{package}/task.py", f"{package}/task.py"]
    return [*sandboxed, *over, *binds, "--chdir", str(folder), python, "-m", "trainer.task"]


def step_seconds(server: Server, uri: str, name: str) -> float:
    """A step of two tasks."""
    return _step_in(_run(server, uri, name, 2))


def step_seconds_by_hand() -> float:
    """A step of the same two processes, on the loopback."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    cluster = json.dumps({"worker": [f"127.0.0.1:{port}", "127.0.0.1:0"]})
    processes = [
        subprocess.Popen(
            bare(_STEP),
            stdout=subprocess.PIPE,
            env={"CLOUDML_CLUSTER": cluster, "CLOUDML_INDEX": str(index)},
            cwd="/",
        )
        for index in range(2)
    ]
    return _step_in("".join(process.communicate()[0].decode() for process in processes))


def run() -> list[Figure]:
    with temporary_folder() as folder, serving() as server:
        client = server.client()
        stamps = upload(client, wheel(folder, STAMP))
        steps = upload(client, wheel(folder, _STEP, "2.0"))
        names = map("gang-{}".format, range(1000))
        loops = {"a shell loop": fenced(STAMP), "a loop of the module": fenced_module(folder)}
        starts = {
            what: in_pairs(
                lambda: start_seconds(server, stamps, next(names)),
                partial(start_seconds_by_hand, command),
                START_ROUNDS,
                warm_ups=2,
            )
            for what, command in loops.items()
        }
        times = in_pairs(
            lambda: step_seconds(server, steps, next(names)), step_seconds_by_hand, STEP_ROUNDS
        )
    figures = [
        ratio(
            f"submit to the last first line, {TASKS} tasks, to {what}",
            [(1000 * ours, 1000 * hand) for ours, hand in pairs],
            1.5,
            "ms",
        )
        for what, pairs in starts.items()
    ]
    in_us = [(1e6 * ours, 1e6 * hand) for ours, hand in times]
    return [*figures, ratio("step of two tasks, to the same by hand", in_us, 1.02, "us")]


def _run(server: Server, uri: str, name: str, tasks: int, quiet_s: float = 0.0) -> str:
    """Run a job to its end; returns its log."""
    job = replace(
        train_job(name, uri),
        worker_count=tasks,
        recipe="cluster",
        framework="python",
        memory_limit="100M",
    )
    calls = server.calls()
    submitted = calls.submit(job)
    time.sleep(quiet_s)
    ended = finished(calls, submitted)
    with calls.log(ended.name) as log:
        return log.read().decode()


def _step_in(log: str) -> float:
    found = re.search(r"step ([0-9.e-]+)", log)
    if found is None:
        raise SystemExit(f"nobody told how long a step takes:\n{log}")
    return float(found[1])


if __name__ == "__main__":
    for figure in run():
        print(figure)
