"""Frameworks go on with more or fewer tasks than those that have saved their checkpoint."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from cloud_ml.sdk.jobs.handles import JobHandle
from support.server import RealServer, serving

pytestmark = [pytest.mark.runtimes, pytest.mark.timeout(1500)]
QUOTA = ("admin", "quota", "set", "default", "--memory")
_UNREACHABLE = ("Failed to fetch", "dns error", "error sending request")

LIGHTGBM = """
import os, time
import lightgbm, numpy
from cloud_ml import job

cluster = job.cluster()
index, world = cluster.task_index, len(cluster.addresses["worker"])
values = numpy.random.default_rng(0).normal(size=(2000, 2))
labels = values[:, 0] > 0
start = job.latest()
print(world, "tasks from", start and start.step, flush=True)
model = lightgbm.train(
    {"objective": "binary", "num_threads": 1, **job.lightgbm()},
    lightgbm.Dataset(values[index::world], labels[index::world]),
    num_boost_round=10,
    init_model=start.path if start else None,
)
if index == 0:
    path = os.path.join(job.checkpoint_dir(), f"trees-{model.num_trees()}")
    model.save_model(path)
    job.saved(path, model.num_trees())
    accuracy = numpy.mean((model.predict(values) > 0.5) == labels)
    print("trees", model.num_trees(), "good", accuracy > 0.9, flush=True)
if str(world) == os.environ["WAITS"]:
    print("waits", flush=True)
    time.sleep(1200)
"""
PYTORCH = """
import os, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from cloud_ml import job

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(2016)
values = torch.randn(600, 4)
labels = values.sum(1, keepdim=True)
network = torch.nn.Linear(4, 1)
start = job.latest()
step = 0
if start:
    state = torch.load(start.path)
    network.load_state_dict(state["model"])
    step = state["step"]
if rank == 0:
    print(world, "tasks from", start and start.step, flush=True)
model = DistributedDataParallel(network)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
while step < 20:
    if step == 10 and str(world) == os.environ["WAITS"]:
        print("waits", flush=True)
        time.sleep(1200)
    loss = ((model(values[rank::world]) - labels[rank::world]) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    if rank == 0 and step % 10 == 0:
        path = os.path.join(job.checkpoint_dir(), f"step-{step}.pt")
        torch.save({"model": network.state_dict(), "step": step}, path)
        job.saved(path, step)
if rank == 0:
    print("trees", step, "good", bool((network.weight - 1).abs().max() < 1e-3), flush=True)
dist.destroy_process_group()
os._exit(0)  # PyTorch aborts now and then while the interpreter ends, which costs a retry
"""
XGBOOST = """
import os, time
import numpy, xgboost
from xgboost.tracker import RabitTracker
from cloud_ml import job

rank, world = int(os.environ["DMLC_TASK_ID"]), int(os.environ["DMLC_NUM_WORKER"])
host, port = os.environ["DMLC_TRACKER_URI"], int(os.environ["DMLC_TRACKER_PORT"])
start = job.latest()
if rank == 0:
    print(world, "tasks from", start and start.step, flush=True)
    tracker = RabitTracker(n_workers=world, host_ip=host, port=port, sortby="task")
    tracker.start()
with xgboost.collective.CommunicatorContext(
    dmlc_tracker_uri=host, dmlc_tracker_port=port, dmlc_task_id=str(rank), dmlc_retry=20
):
    values = numpy.random.default_rng(0).normal(size=(2000, 2))
    labels = values[:, 0] > 0
    model = xgboost.train(
        {"objective": "binary:logistic", "nthread": 1},
        xgboost.DMatrix(values[rank::world], labels[rank::world]),
        num_boost_round=10,
        xgb_model=start.path if start else None,
    )
    trees = model.num_boosted_rounds()
    found = model.predict(xgboost.DMatrix(values)) > 0.5  # all tasks make a DMatrix together
    if rank == 0:
        path = os.path.join(job.checkpoint_dir(), f"trees-{trees}.ubj")
        model.save_model(path)
        job.saved(path, trees)
        print("trees", trees, "good", numpy.mean(found == labels) > 0.9, flush=True)
    if str(world) == os.environ["WAITS"]:
        print("waits", flush=True)
        time.sleep(1200)
"""
MPI = """
import json, os, time
from mpi4py import MPI
from cloud_ml import job

comm = MPI.COMM_WORLD
start = job.latest()
step, model = json.load(open(start.path)) if start else (0, 0)
if comm.rank == 0:
    print(comm.size, "tasks from", start and start.step, flush=True)
while step < 20:
    if step == 10 and str(comm.size) == os.environ["WAITS"]:
        print("waits", flush=True)
        time.sleep(1200)
    mine = sum(step * one for one in range(comm.rank, 100, comm.size))
    step, model = step + 1, model + comm.allreduce(mine)
    if comm.rank == 0 and step % 10 == 0:
        path = os.path.join(job.checkpoint_dir(), f"step-{step}")
        with open(path, "w") as file:
            json.dump([step, model], file)
        job.saved(path, step)
if comm.rank == 0:
    print("trees", step, "good", model == sum(range(20)) * sum(range(100)), flush=True)
"""
JAX = """
import os, time
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from cloud_ml import job

jax.distributed.initialize()
rank, world = jax.process_index(), jax.process_count()
mesh = Mesh(jax.devices(), ("data",))
values = np.random.default_rng(2016).normal(size=(600, 4)).astype("float32")
own = multihost_utils.host_local_array_to_global_array(values[rank::world], mesh, P("data"))

def loss_of(weights, values):
    return ((values @ weights - values.sum(1)) ** 2).mean()

def step_of(weights, values):
    return weights - 0.25 * jax.grad(loss_of)(weights, values)

step_of = jax.jit(step_of, out_shardings=NamedSharding(mesh, P()))
start = job.latest()
step, weights = 0, np.zeros(4, "float32")
if start:
    step, weights = start.step, np.load(start.path)
if rank == 0:
    print(world, "tasks from", start and start.step, flush=True)
while step < 20:
    if step == 10 and str(world) == os.environ["WAITS"]:
        print("waits", flush=True)
        time.sleep(1200)
    weights = np.asarray(step_of(weights, own))
    step += 1
    if rank == 0 and step % 10 == 0:
        path = os.path.join(job.checkpoint_dir(), f"step-{step}.npy")
        np.save(path, weights)
        job.saved(path, step)
if rank == 0:
    print("trees", step, "good", bool(abs(weights - 1).max() < 0.01), flush=True)
"""
TENSORFLOW = """
import os, time
import numpy as np
import tensorflow as tf
from cloud_ml import job

strategy = tf.distribute.MultiWorkerMirroredStrategy()
resolver = strategy.cluster_resolver
world = strategy.num_replicas_in_sync
rank = resolver.task_id + (resolver.task_type == "worker")
with strategy.scope():
    weights = tf.Variable(tf.zeros([4, 1]))
values = np.random.default_rng(2016).normal(size=(600, 4)).astype("float32")
own = tf.constant(values[rank::world])
start = job.latest()
step = 0
if start:
    step = start.step
    weights.assign(np.load(start.path))
if rank == 0:
    print(world, "tasks from", start and start.step, flush=True)

@tf.function
def step_of(values):
    def replica(values):
        with tf.GradientTape() as tape:
            wanted = tf.reduce_sum(values, 1, keepdims=True)
            loss = tf.reduce_mean((values @ weights - wanted) ** 2)
        mine = tape.gradient(loss, weights)
        weights.assign_sub(0.25 * tf.distribute.get_replica_context().all_reduce("mean", mine))
    strategy.run(replica, args=(values,))

while step < 20:
    if step == 10 and str(world) == os.environ["WAITS"]:
        print("waits", flush=True)
        time.sleep(1200)
    step_of(own)
    step += 1
    if rank == 0 and step % 10 == 0:
        path = os.path.join(job.checkpoint_dir(), f"step-{step}.npy")
        np.save(path, weights.numpy())
        job.saved(path, step)
if rank == 0:
    print("trees", step, "good", bool(abs(weights.numpy() - 1).max() < 0.01), flush=True)
"""


@pytest.mark.parametrize(
    ("source", "options", "tasks", "memory"),
    [
        pytest.param(LIGHTGBM, ("-F", "lightgbm"), {"worker": 3}, "800M", id="lightgbm"),
        pytest.param(XGBOOST, ("-F", "xgboost"), {"worker": 3}, "800M", id="xgboost"),
        pytest.param(PYTORCH, ("-F", "pytorch"), {"worker": 3}, "800M", id="pytorch"),
        pytest.param(JAX, ("-F", "jax"), {"worker": 3}, "800M", id="jax"),
        pytest.param(
            MPI,
            ("-F", "python", "--recipe", "mpi"),
            {"launcher": 1, "worker": 3},
            "1200M",
            id="mpi",
        ),
        pytest.param(
            TENSORFLOW,
            ("-F", "tensorflow"),
            {"master": 1, "worker": 2},
            "800M",
            id="tensorflow",
        ),
    ],
)
def test_it_goes_on_with_more_tasks_when_the_quota_is_raised(
    source: str, options: tuple[str, ...], tasks: dict[str, int], memory: str, tmp_path: Path
) -> None:
    (folder := tmp_path / "server").mkdir()
    with serving(folder) as server:
        server.cli(*QUOTA, memory).good()
        workers = "1:2" if "master" in tasks else "1:3"
        job = _submitted(server, tmp_path, source, (*options, "-w", workers, "-e", "WAITS=2"))
        server.cli(*QUOTA, "unlimited").good()
        ended = job.wait(600)
        log = b"".join(job.logs()).decode()
    assert ended.succeeded, log
    assert (ended.attempt, ended.retries_used, dict(ended.world)) == (2, 0, tasks)
    assert "2 tasks from None\n" in log
    assert "3 tasks from 10\n" in log
    assert "trees 20 good True\n" in log


@pytest.mark.parametrize(
    ("source", "framework"),
    [pytest.param(PYTORCH, "pytorch", id="pytorch"), pytest.param(JAX, "jax", id="jax")],
)
def test_it_goes_on_with_fewer_tasks_when_one_fails_and_the_quota_is_smaller(
    source: str, framework: str, tmp_path: Path
) -> None:
    (folder := tmp_path / "server").mkdir()
    with serving(folder) as server:
        options = ("-F", framework, "-w", "1:3", "-e", "WAITS=3")
        job = _submitted(server, tmp_path, source, options)
        server.cli(*QUOTA, "800M").good()
        _kill(server, job.uid, "1")
        ended = job.wait(600)
        log = b"".join(job.logs()).decode()
    assert ended.succeeded, log
    assert (ended.attempt, ended.retries_used, dict(ended.world)) == (2, 1, {"worker": 2})
    assert "3 tasks from None\n" in log
    assert "2 tasks from 10\n" in log
    assert "trees 20 good True\n" in log


def _submitted(
    server: RealServer, folder: Path, source: str, options: tuple[str, ...]
) -> JobHandle:
    """A job that has saved a checkpoint, and waits."""
    script = folder / "elastic.py"
    script.write_text(source, "utf-8")
    server.cli("jobs", "submit", str(script), "-n", "elastic", "-M", "400M", *options).good()
    job = server.client().get_train_job("elastic")
    log = b""
    for chunk in job.logs(follow=True):
        log += chunk
        if b"waits" in log or any(word.encode() in log for word in _UNREACHABLE):
            break
    if any(word.encode() in log for word in _UNREACHABLE):
        pytest.skip("the packages cannot be fetched here")
    assert b"waits" in log, log.decode()
    return job


def _kill(server: RealServer, uid: str, index: str) -> None:
    """The Python process of a worker, by SIGKILL."""
    for pid in server.processes_of(uid):
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            environment = process.environ()
            if environment.get("CLOUDML_INDEX") == index and "python" in process.name():
                os.kill(pid, signal.SIGKILL)
                return
    raise AssertionError(f"no process of worker-{index} runs")
