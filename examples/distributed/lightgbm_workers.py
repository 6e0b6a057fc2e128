"""LightGBM on several processes: cloudml run lightgbm_workers.py -F lightgbm -w 2"""

import lightgbm
import numpy as np

from cloud_ml import job

cluster = job.cluster()
size = len(cluster.addresses.get("worker", [""]))
rng = np.random.default_rng(cluster.task_index)  # each task has its part of the data
values = rng.normal(size=(1000, 2))
# One half of the space in each task: a good model needs both.
values[:, 0] = np.abs(values[:, 0]) * (1 if cluster.task_index % 2 else -1)
labels = values[:, 0] > 0
model = lightgbm.train(
    {"objective": "binary", **job.lightgbm()},
    lightgbm.Dataset(values, labels),
    num_boost_round=20,
)
if cluster.task_index == 0:
    model.save_model("model.txt")  # it is the same in all

test = rng.normal(size=(1000, 2))
accuracy = np.mean((model.predict(test) > 0.5) == (test[:, 0] > 0))
print(f"task {cluster.task_index} of {size} found {accuracy:.2f}")
