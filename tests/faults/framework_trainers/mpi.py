"""The model of ``gang_trainer``, with gradients that all processes gather."""

from mpi4py import MPI
from trainer.common import HELD_STEP, STEPS, begin
from trainer.gang_trainer import Model, finish, gradient_of, must_save, restored, save

from cloud_ml import job

task = begin()
communicator = MPI.COMM_WORLD
rank = communicator.rank
model = restored(task) if rank == 0 else None
model = Model.of(communicator.bcast(model.state() if rank == 0 else None))
while model.step < STEPS:
    if model.step == HELD_STEP:
        task.here("training")
    model.add(communicator.allgather(gradient_of(rank, model.state())))
    if rank == 0:
        task.note_step("step", model.step)
        job.progress(step=model.step, of=STEPS)
    task.say(f"step {model.step}")
    if rank == 0 and must_save(model.state()):
        save(task, model.state())
if rank == 0:
    finish(task, model.state())
