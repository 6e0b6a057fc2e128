"""TensorFlow 2: a checkpoint manager in the job's folder."""

import os

import tensorflow as tf

from cloud_ml import job

weight, step = tf.Variable(0.0), tf.Variable(0, dtype=tf.int64)
checkpoint = tf.train.Checkpoint(weight=weight, step=step)
manager = tf.train.CheckpointManager(checkpoint, job.checkpoint_dir(), 3)
checkpoint.restore(manager.latest_checkpoint)
print("starts at step", int(step))
while step < 30:
    weight.assign_add(1.0)
    step.assign_add(1)
    if step % 10 == 0:
        manager.save(checkpoint_number=step)
    if step == 15 and os.environ["CLOUDML_ATTEMPT"] == "1":
        os._exit(1)  # a failure
print("trained")
