"""A step of TensorFlow's parameter server strategy, one server and one worker, beside the same
processes started by hand.

The chief schedules each step on the worker, which fetches the weights from the server and sends
their gradient back. Both sides run the same program with the same version of TensorFlow. Run:
``python benchmarks/run.py peers.tensorflow_ps``; the first time downloads it twice.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from harness import Figure, Server, finished, serving, temporary_folder, train_job, upload, wheel
from rounds import in_pairs, ratio

from peers.having import Absent, folder_of, version_of

ROUNDS = 6
_STEPS = 300
_LIMIT_S = 240
_PROGRAM = f"""
import json, os, sys, time
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
import tensorflow as tf

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(2)
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id
    ).join()
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    weights = tf.Variable(tf.zeros([256, 64]))
values, answers = tf.random.normal([128, 256], seed=1), tf.random.normal([128, 64], seed=2)

@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(values @ weights - answers))
    weights.assign_sub(0.01 * tape.gradient(loss, weights))

def run(count):
    for _ in range(count):
        coordinator.schedule(step)
        coordinator.join()

run({_STEPS} // 5)
begin = time.perf_counter()
run({_STEPS})
print("step", (time.perf_counter() - begin) / {_STEPS}, flush=True)
"""


def run() -> list[Figure]:
    python = folder_of("tensorflow") / "bin" / "python"
    with temporary_folder() as folder, serving() as server:
        (script := folder / "steps.py").write_text(_PROGRAM)
        uri = upload(server.client(), wheel(folder, _PROGRAM, "2.0"))
        version, names = version_of("tensorflow"), map("steps-{}".format, range(1000))
        pairs = in_pairs(
            lambda: _by_platform(server, uri, next(names), version),
            lambda: _by_hand(python, script),
            ROUNDS,
        )
    what = f"step of TensorFlow {version}, 1 parameter server and 1 worker, to the same by hand"
    return [ratio(what, [(1e6 * ours, 1e6 * hand) for ours, hand in pairs], 1.02, "us")]


def _by_platform(server: Server, uri: str, name: str, version: str) -> float:
    job = replace(
        train_job(name, uri),
        framework="tensorflow",
        framework_version=version,
        ps_count=1,
        worker_count=1,
        memory_limit="1G",
    )
    calls = server.calls()
    ended = finished(calls, calls.submit(job))
    with calls.log(ended.name) as log:
        return _step_in(log.read().decode())


def _by_hand(python: Path, script: Path) -> float:
    """The same three processes; those that only serve are ended with the chief."""
    cluster = dict(zip(("chief", "worker", "ps"), _free_addresses(3), strict=True))
    with ExitStack() as stack:

        def start(role: str) -> subprocess.Popen[bytes]:
            config = {
                "cluster": {name: [address] for name, address in cluster.items()},
                "task": {"type": role, "index": 0},
            }
            process = subprocess.Popen(
                [python, script],
                env={**_VARIABLES, "TF_CONFIG": json.dumps(config)},
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        start("ps")
        start("worker")
        printed, _ = start("chief").communicate(timeout=_LIMIT_S)
    return _step_in(printed.decode())


_VARIABLES = {"PATH": os.defpath, "HOME": "/var/tmp", "GRPC_FAIL_FAST": "use_caller"}


def _free_addresses(count: int) -> list[str]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]


def _step_in(log: str) -> float:
    found = re.search(r"step ([0-9.e-]+)", log)
    if found is None:
        raise Absent(f"nobody told how long a step takes:\n{log[-2000:]}")
    return float(found[1])


if __name__ == "__main__":
    began = time.monotonic()
    for figure in run():
        print(figure)
    print(f"{time.monotonic() - began:.0f} s")
