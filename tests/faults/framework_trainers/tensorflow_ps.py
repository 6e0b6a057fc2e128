"""ParameterServerStrategy. The coordinator makes many small steps between two of its own."""

import json
import os

import numpy as np
import tensorflow as tf
from trainer.common import STEPS, begin, finish, is_due, meet, resume, save

UPDATES = 20
task = begin()
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id
    )
    server.join()

strategy = tf.distribute.ParameterServerStrategy(resolver)
with strategy.scope():
    weight = tf.Variable(tf.zeros([4]))
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
path, step = resume(task)
if path:
    weight.assign(np.load(path))


@tf.function
def update():
    """A step along a gradient of random data, with noise: so models have a spread."""
    values = tf.random.normal([32, 4])
    difference = tf.linalg.matvec(values, weight - 3.0) + tf.random.normal([32])
    weight.assign_sub(0.05 * tf.reduce_mean(difference[:, None] * values, 0))


while step < STEPS:
    meet(task, step)
    for _ in range(UPDATES):
        coordinator.schedule(update)
    coordinator.join()
    step += 1
    task.note_step("step", step)
    task.say(f"step {step}")
    if is_due(step):
        found = weight.numpy()
        save(task, step, lambda draft: np.save(draft, found), ".npy")  # noqa: B023
finish(task, json.dumps(weight.numpy().tolist()))
# A program that ends while its coordinator brings a worker back may wait for ever: the thread that
# does that is gone, and holds the lock that `ClusterCoordinator.__del__` waits for.
os._exit(0)
