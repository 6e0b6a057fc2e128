"""One array over all processes, and a gradient that XLA sums over them. The random numbers of a
step follow from its number.
"""

import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from trainer.common import HELD_STEP, STEPS, begin, finish, is_due, resume, save

task = begin()
jax.distributed.initialize()
rank, size = jax.process_index(), jax.process_count()
mesh = Mesh(jax.devices(), ("data",))
everywhere = NamedSharding(mesh, P())


def loss_of(weights, values):
    """How far the network is from the sum of its inputs."""
    hidden = jnp.tanh(values @ weights["first"])
    return jnp.mean((hidden @ weights["second"] - values.sum(1, keepdims=True)) ** 2)


@partial(jax.jit, out_shardings=everywhere)
def step_of(weights, values):
    """The weights after one step, the same in all processes."""
    gradient = jax.grad(loss_of)(weights, values)
    return jax.tree.map(lambda w, g: w - 0.05 * g, weights, gradient)


key = jax.random.key(2016)
weights = {
    "first": np.asarray(jax.random.normal(jax.random.fold_in(key, 1), (8, 16))),
    "second": np.asarray(jax.random.normal(jax.random.fold_in(key, 2), (16, 1))),
}
path, step = resume(task, notes=rank == 0)
if path:
    with np.load(path) as saved:
        weights = dict(saved)
while step < STEPS:
    if step == HELD_STEP:
        task.here("training")
    own = jax.random.fold_in(jax.random.fold_in(jax.random.key(rank), step), 0)
    mine = np.asarray(jax.random.normal(own, (32, 8)))
    values = multihost_utils.host_local_array_to_global_array(mine, mesh, P("data"))
    weights = {name: np.asarray(one) for name, one in step_of(weights, values).items()}
    step += 1
    if rank == 0:
        task.note_step("step", step)
    task.say(f"step {step}")
    if rank == 0 and is_due(step):
        save(task, step, lambda draft: np.savez(draft, **weights), ".npz")  # noqa: B023
if rank == 0:
    finish(task, json.dumps({name: one.tolist() for name, one in weights.items()}))
