"""A monitored session of TensorFlow 1 in each task, which saves its checkpoints by itself."""

import json
import os

import tensorflow as tf
from trainer.common import INTERVAL, STEPS, begin, finish, meet

UPDATES = 20
task = begin()
config = json.loads(os.environ["TF_CONFIG"])
role, index = config["task"]["type"], config["task"]["index"]
cluster = tf.train.ClusterSpec(config["cluster"])
server = tf.train.Server(cluster, job_name=role, task_index=index)
if role == "ps":
    server.join()

device = tf.train.replica_device_setter(worker_device=f"/job:{role}/task:{index}", cluster=cluster)
with tf.device(device):
    weight = tf.get_variable("weight", [4], initializer=tf.zeros_initializer())
    updates = tf.train.get_or_create_global_step()
    values = tf.random_normal([32, 4])
    # With noise: so models have a spread.
    difference = tf.linalg.matvec(values, weight - 3.0) + tf.random_normal([32])
    loss = tf.reduce_mean(difference**2)
    train = tf.train.GradientDescentOptimizer(0.025).minimize(loss, updates)

chief = role == "master"
with tf.train.MonitoredTrainingSession(
    master=server.target,
    is_chief=chief,
    checkpoint_dir=os.environ["CLOUDML_CHECKPOINT_DIR"],
    save_checkpoint_steps=INTERVAL * UPDATES,
    save_summaries_steps=None,
    log_step_count_steps=None,
    hooks=[tf.train.StopAtStepHook(last_step=STEPS * UPDATES)],
) as session:
    done = session.run_step_fn(lambda step_context: step_context.session.run(updates))
    if chief:
        task.note_step("from", done // UPDATES)
    found = None
    while not session.should_stop():
        meet(task, done // UPDATES)
        before = done
        done, found, _ = session.run([updates, weight, train])
        if chief and done < before:  # the session has recovered
            task.note_step("from", done // UPDATES)
        if chief:
            task.note_step("step", done // UPDATES)
if chief:
    finish(task, json.dumps(found.tolist()))
