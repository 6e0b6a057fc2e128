"""Trees of all tasks, without random numbers, whose state LightGBM would not save."""

import json

import lightgbm
import numpy as np
from trainer.common import HELD_STEP, STEPS, begin, finish, is_due, resume, save

from cloud_ml import job


def before(environment):
    """Stop where the test wants it."""
    if environment.iteration == HELD_STEP:
        task.here("training")


def after(environment):
    """Save checkpoints."""
    step = environment.iteration + 1
    if rank == 0:
        task.note_step("step", step)
    task.say(f"step {step}")
    if rank == 0 and is_due(step):
        save(task, step, environment.model.save_model, ".txt")


before.before_iteration = True
task = begin()
rank = task.index
path, start = resume(task, notes=rank == 0)
values = np.random.default_rng(rank).normal(size=(500, 4))
labels = values.sum(1) > 0
parameters = {
    "objective": "binary",
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "boost_from_average": False,
    "verbosity": -1,
}
model = lightgbm.train(
    parameters | job.lightgbm(),
    lightgbm.Dataset(values, labels),
    num_boost_round=STEPS - start,
    init_model=path,
    callbacks=[before, after],
)
if rank == 0:
    finish(task, json.dumps(model.dump_model()["tree_info"]))
