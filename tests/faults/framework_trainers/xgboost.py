"""Trees of all ranks, with a tracker in the first one. There is no sampling: XGBoost chooses its
bins from the sample of the first step, and a model does not say which they were.
"""

import json
import os

import numpy as np
import xgboost as xgb
from trainer.common import HELD_STEP, STEPS, begin, finish, is_due, resume, save
from xgboost.tracker import RabitTracker

task = begin()
rank, size = int(os.environ["DMLC_TASK_ID"]), int(os.environ["DMLC_NUM_WORKER"])
host, port = os.environ["DMLC_TRACKER_URI"], int(os.environ["DMLC_TRACKER_PORT"])
path, step = resume(task, notes=rank == 0)
if rank == 0:
    tracker = RabitTracker(n_workers=size, host_ip=host, port=port, sortby="task")
    tracker.start()
with xgb.collective.CommunicatorContext(
    dmlc_tracker_uri=host, dmlc_tracker_port=port, dmlc_task_id=str(rank), dmlc_retry=20
):
    values = np.random.default_rng(rank).normal(size=(500, 4))
    labels = values.sum(1) > 0
    parameters = {
        "objective": "binary:logistic",
        "nthread": 1,
        "seed": 2016,
    }
    data = xgb.DMatrix(values, labels)
    model = xgb.Booster(parameters, [data], model_file=path)
    while step < STEPS:
        if step == HELD_STEP:
            task.here("training")
        model.update(data, step)
        step += 1
        if rank == 0:
            task.note_step("step", step)
        task.say(f"step {step}")
        if rank == 0 and is_due(step):
            save(task, step, model.save_model, ".ubj")
    if rank == 0:
        finish(task, json.dumps(model.get_dump(with_stats=True)))
