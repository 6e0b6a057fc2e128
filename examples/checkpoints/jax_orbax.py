# /// script
# dependencies = ["jax", "orbax-checkpoint"]
# ///
"""JAX: Orbax's CheckpointManager renames what it has saved, so it is found without job.saved."""

import os

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

from cloud_ml import job

manager = ocp.CheckpointManager(job.checkpoint_dir())
state = {"weight": jnp.zeros(3), "step": 0}
if start := job.latest():
    # With --restore-from, it is in the folder of another job.
    saved = ocp.CheckpointManager(os.path.dirname(start.path))
    state = saved.restore(start.step, args=ocp.args.StandardRestore(state))
weight, step = state["weight"], int(state["step"])
print("starts at step", step)
gradient = jax.jit(jax.grad(lambda weight: jnp.sum((weight - 3.0) ** 2)))
while step < 30:
    step += 1
    weight = weight - 0.1 * gradient(weight)
    if step % 10 == 0:
        manager.save(step, args=ocp.args.StandardSave({"weight": weight, "step": step}))
    if step == 15 and os.environ["CLOUDML_ATTEMPT"] == "1":
        manager.wait_until_finished()  # it saves while the code runs on
        os._exit(1)  # a failure
manager.wait_until_finished()
print("trained")
