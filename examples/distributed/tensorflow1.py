"""TensorFlow 1 with parameter servers: cloudml run tensorflow1.py -p 1 -w 2"""

import json
import os

import tensorflow as tf

config = json.loads(os.environ["TF_CONFIG"])
role, index = config["task"]["type"], config["task"]["index"]
cluster = tf.train.ClusterSpec(config["cluster"])
server = tf.train.Server(cluster, job_name=role, task_index=index)
if role == "ps":
    server.join()  # never returns: the platform stops it when the master has ended

device = tf.train.replica_device_setter(
    worker_device="/job:%s/task:%d" % (role, index), cluster=cluster
)
with tf.device(device):
    weight = tf.Variable(0.0, name="weight")
    step = tf.train.get_or_create_global_step()
    train = tf.train.GradientDescentOptimizer(0.05).minimize((weight - 3.0) ** 2, step)

hooks = [tf.train.StopAtStepHook(last_step=300)]
with tf.train.MonitoredTrainingSession(
    master=server.target, is_chief=role == "master", checkpoint_dir="model", hooks=hooks
) as session:
    while not session.should_stop():
        found, _ = session.run([weight, train])
print("%s-%d found %.2f" % (role, index, found))
