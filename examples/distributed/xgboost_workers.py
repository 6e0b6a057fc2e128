"""XGBoost on several processes: cloudml run xgboost_workers.py -F xgboost -w 2"""

import os

import numpy as np
import xgboost as xgb
from xgboost.tracker import RabitTracker

rank, size = int(os.environ["DMLC_TASK_ID"]), int(os.environ["DMLC_NUM_WORKER"])
host, port = os.environ["DMLC_TRACKER_URI"], int(os.environ["DMLC_TRACKER_PORT"])
if rank == 0:
    tracker = RabitTracker(n_workers=size, host_ip=host, port=port, sortby="task")
    tracker.start()

# Without ``dmlc_retry`` a task gives up when the tracker starts six seconds after it.
with xgb.collective.CommunicatorContext(
    dmlc_tracker_uri=host, dmlc_tracker_port=port, dmlc_task_id=str(rank), dmlc_retry=20
):
    rng = np.random.default_rng(rank)  # each task has its part of the data
    values = rng.normal(size=(1000, 2))
    # One half of the space in each task: a good model needs both.
    values[:, 0] = np.abs(values[:, 0]) * (1 if rank % 2 else -1)
    labels = values[:, 0] > 0
    model = xgb.train(
        {"objective": "binary:logistic"}, xgb.DMatrix(values, labels), num_boost_round=10
    )
    if rank == 0:
        model.save_model("model.json")  # it is the same in all

    test = rng.normal(size=(1000, 2))
    found = model.predict(xgb.DMatrix(test)) > 0.5
    print(f"rank {rank} of {size} found {np.mean(found == (test[:, 0] > 0)):.2f}")
