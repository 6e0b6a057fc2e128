"""TensorFlow 2 with parameter servers: cloudml run tensorflow_ps.py -p 1 -w 2"""

import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id
    )
    server.join()  # never returns: the platform stops it when the chief has ended

strategy = tf.distribute.ParameterServerStrategy(resolver)
with strategy.scope():
    weight = tf.Variable(0.0)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)


@tf.function
def step():
    weight.assign_sub(0.05 * 2.0 * (weight - 3.0))


for _ in range(100):
    coordinator.schedule(step)
coordinator.join()
print(f"found {weight.numpy():.2f}")
