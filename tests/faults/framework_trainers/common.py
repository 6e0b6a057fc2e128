"""What the trainers of all frameworks have in common: the module ``trainer.common`` of their jobs.

They stop at the moments of ``gang_trainer``, and save a checkpoint every ``INTERVAL`` steps.
"""

import os
import pathlib
import sys
import threading
import time

from trainer.gang_trainer import HELD_STEP, INTERVAL, STEPS, Task

from cloud_ml import job

__all__ = [
    "HELD_STEP",
    "INTERVAL",
    "STEPS",
    "attend",
    "begin",
    "finish",
    "is_due",
    "meet",
    "resume",
    "save",
]


def begin():
    """The task, which has started."""
    return attend(sys.argv[1:])


def attend(arguments):
    """The same with the arguments of another task's module."""
    task = Task(arguments)
    task.note_start()
    threading.Thread(target=task.follow_orders, daemon=True).start()
    task.say("start")
    return task


def meet(task, step):
    """At the step at which one task stops, each waits until that has gone on."""
    if step < HELD_STEP or not task.holds:
        return
    passed = task.place / "passed"
    if f"training:{task.name}" in task.holds:
        task.here("training")
        passed.touch()
    while not passed.exists():
        time.sleep(0.1)


def resume(task, *, notes=True):
    """The path of the newest checkpoint, and its step; ``None`` and 0 at first.

    One of several tasks ``notes`` from where they go on.
    """
    path = os.environ.get("CLOUDML_RESTORE_FROM")
    step = int(path.rpartition("-")[2].partition(".")[0]) if path else 0
    if notes:
        task.note_step("from", step)
    return path, step


def is_due(step):
    """Whether a checkpoint of this step is due."""
    return step == STEPS or (step > 0 and step % INTERVAL == 0)


def save(task, step, write, suffix=""):
    """Save a checkpoint, whole or not at all: ``write`` takes the path of the file."""
    path = pathlib.Path(job.checkpoint_dir(), f"step-{step}{suffix}")
    draft = path.with_name(f"draft-{step}{suffix}")
    write(str(draft))
    draft.rename(path)
    job.saved(path, step)
    task.say(f"saved {step}")


def finish(task, text):
    """Leave the result."""
    draft = task.place / "result.part"
    draft.write_text(text)
    draft.rename(task.place / "result")
    task.say("finished")
