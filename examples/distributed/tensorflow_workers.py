"""TensorFlow 2 with equal workers: cloudml run tensorflow_workers.py -F tensorflow -w 1"""

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    weight = tf.Variable(0.0)


@tf.function
def step():
    def replica():
        context = tf.distribute.get_replica_context()
        gradient = context.all_reduce("mean", 2.0 * (weight - 3.0))
        weight.assign_sub(0.05 * gradient)

    strategy.run(replica)


for _ in range(100):
    step()
print(f"replica of {strategy.num_replicas_in_sync} found {weight.numpy():.2f}")
