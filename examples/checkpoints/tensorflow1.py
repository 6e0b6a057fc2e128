"""TensorFlow 1: a monitored session saves checkpoints, and goes on from the newest by itself."""

import os

import tensorflow as tf
from tensorflow.contrib import layers  # noqa: F401 - only TensorFlow 1 has it

step = tf.train.get_or_create_global_step()
weight = tf.get_variable("weight", [], initializer=tf.zeros_initializer())
train = tf.group(tf.assign_add(weight, 1.0), tf.assign_add(step, 1))
with tf.train.MonitoredTrainingSession(
    checkpoint_dir=os.environ["CLOUDML_CHECKPOINT_DIR"],
    save_checkpoint_steps=10,
    save_checkpoint_secs=None,
) as session:
    done = session.run(step)
    print("starts at step", done)
    while done < 30:
        done = session.run([train, step])[1]
        if done == 15 and os.environ["CLOUDML_ATTEMPT"] == "1":
            os._exit(1)  # a failure
print("trained")
