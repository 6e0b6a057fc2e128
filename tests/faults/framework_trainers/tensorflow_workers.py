"""MultiWorkerMirroredStrategy with op determinism. The random numbers of a step follow from its
number.
"""

import json

import numpy as np
import tensorflow as tf
from trainer.common import HELD_STEP, STEPS, begin, finish, is_due, resume, save

task = begin()
tf.keras.utils.set_random_seed(2016)
tf.config.experimental.enable_op_determinism()
strategy = tf.distribute.MultiWorkerMirroredStrategy()
rank = strategy.cluster_resolver.task_id + (strategy.cluster_resolver.task_type == "worker")
random = np.random.default_rng(2016)
with strategy.scope():
    first = tf.Variable(random.normal(size=(8, 16)), dtype=tf.float32)
    second = tf.Variable(random.normal(size=(16, 1)), dtype=tf.float32)
variables = [first, second]
path, step = resume(task, notes=rank == 0)
if path:
    with np.load(path) as saved:
        for number, variable in enumerate(variables):
            variable.assign(saved[f"arr_{number}"])


@tf.function
def step_of(values):
    """One step in all tasks."""

    def replica(values):
        with tf.GradientTape() as tape:
            found = tf.tanh(values @ first) @ second
            loss = tf.reduce_mean((found - tf.reduce_sum(values, 1, keepdims=True)) ** 2)
        gradients = tape.gradient(loss, variables)
        summed = tf.distribute.get_replica_context().all_reduce("mean", gradients)
        for variable, gradient in zip(variables, summed, strict=True):
            variable.assign_sub(0.05 * gradient)

    strategy.run(replica, args=(values,))


while step < STEPS:
    if step == HELD_STEP:
        task.here("training")
    step_of(tf.constant(np.random.default_rng([rank, step]).normal(size=(32, 8)), tf.float32))
    step += 1
    if rank == 0:
        task.note_step("step", step)
    task.say(f"step {step}")
    if rank == 0 and is_due(step):
        values = [one.numpy() for one in variables]
        save(task, step, lambda draft: np.savez(draft, *values), ".npz")  # noqa: B023
if rank == 0:
    finish(task, json.dumps([one.numpy().tolist() for one in variables]))
