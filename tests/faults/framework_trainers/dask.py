"""The model of ``gang_trainer``: the client asks each worker for its gradient."""

import sys

from distributed import Client
from distributed.diagnostics.plugin import SchedulerPlugin, WorkerPlugin
from trainer.common import HELD_STEP, STEPS, attend, begin
from trainer.gang_trainer import finish, gradient_of, must_save, restored, save

WORKERS = ("worker-0", "worker-1")
TASKS = {}


class OnWorker(WorkerPlugin):
    """Notes the start of a worker, also of one that comes again."""

    def __init__(self, arguments):
        self.arguments = arguments

    def setup(self, worker):
        self.task = attend(self.arguments)


class OnScheduler(SchedulerPlugin):
    """Notes the start of the scheduler."""

    def __init__(self, arguments):
        self.arguments = arguments

    async def start(self, scheduler):
        self.task = attend(self.arguments)


def gradient(rank, state, dask_worker=None):
    """What a worker computes."""
    from distributed import get_worker

    if state["step"] == HELD_STEP:
        (plugin,) = (one for one in get_worker().plugins.values() if hasattr(one, "task"))
        plugin.task.here("training")
    return gradient_of(rank, state)


task = begin()
with Client() as client:
    client.wait_for_workers(len(WORKERS))
    client.register_plugin(OnWorker(sys.argv[1:]))
    client.register_plugin(OnScheduler(sys.argv[1:]))
    model = restored(task)
    while model.step < STEPS:
        if model.step == HELD_STEP:
            task.here("training")
        futures = [
            client.submit(gradient, rank, model.state(), workers=[name], pure=False)
            for rank, name in enumerate(WORKERS)
        ]
        model.add(client.gather(futures))
        task.note_step("step", model.step)
        task.say(f"step {model.step}")
        if must_save(model.state()):
            save(task, model.state())
    finish(task, model.state())
