"""Keras on JAX on several processes: cloudml run keras_jax.py -F keras -V 3-jax -w 2"""

import os

import keras
import numpy as np

keras.distribution.initialize()  # finds the others in KERAS_DISTRIBUTION_*
rank = int(os.environ["KERAS_DISTRIBUTION_PROCESS_ID"])
size = len(keras.distribution.list_devices())
# Each process feeds its own part of the data, so Keras need not divide it.
keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))

values = np.linspace(0.1, 1, 512).reshape(-1, 1)
labels = values * (4 if rank % 2 else 2)  # each part has a slope of its own
model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
model.compile(keras.optimizers.SGD(0.5), "mse")
model.fit(values, labels, batch_size=64, epochs=20, shuffle=False, verbose=0)

(weights,) = model.get_weights()  # the slope that fits all parts, the same in each process
print(f"process {rank} of {size} found {float(weights[0, 0]):.2f}")
