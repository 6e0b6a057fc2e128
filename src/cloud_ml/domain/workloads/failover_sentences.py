"""What is told of restarts: who failed and why, how long it had run, what it goes on from. Pure."""

from __future__ import annotations

from cloud_ml.domain.observed import ObservedGang, ObservedProcess
from cloud_ml.domain.workloads.checkpoints import NotedCheckpoint
from cloud_ml.models import common

_LONGEST_PATH, _LONGEST_URI = 200, 1000
VARIABLE = "CLOUDML_RESTORE_FROM"


def task_restart(task: ObservedProcess, attempt: int) -> str:
    """Such as ``worker-1 starts again (restart 2 of attempt 1) after 3m20s, from step 900
    (ckpt-900): worker-1 exited with code 3``.
    """
    message = f"{task.name} starts again (restart {task.restarts} of attempt {attempt})"
    if task.last_ran_s is not None:
        message += f" after {span(task.last_ran_s)}"
    if task.restored_from is not None:
        message += f", from {_checkpoint(task.restored_from)}"
    return f"{message}: {task.last_end}"


def attempt_end(gang: ObservedGang, ran_s: float | None) -> str:
    """How long an attempt had run, and what the next one goes on from, as far as that is
    known.
    """
    parts = [] if ran_s is None else [f"attempt {gang.attempt} ran for {span(ran_s)}"]
    if gang.checkpoint is not None:
        parts.append(f"its newest checkpoint is {_checkpoint(gang.checkpoint)}")
    return "; ".join(parts)


def checkpoint_given(uri: str, step: int | None) -> str:
    """What a job that begins finds to go on from. Whether its code does so is not known."""
    name = "".join(one if one.isprintable() else "?" for one in uri[:_LONGEST_URI])
    checkpoint = name if step is None else f"{name} (step {step})"
    return f"to go on from {checkpoint}, your code loads the path in {VARIABLE}"


def span(seconds: float) -> str:
    """A duration: ``0.3s``, ``20s``, ``3m20s``."""
    rounded = round(max(0.0, seconds), 1)
    return common.duration_text(rounded if rounded < 10 else round(rounded))


def _checkpoint(checkpoint: NotedCheckpoint) -> str:
    """Its step and path. Paths are the job's words: of bounded length, and on one line."""
    path = "".join(one if one.isprintable() else "?" for one in checkpoint.path[:_LONGEST_PATH])
    return path if checkpoint.step is None else f"step {checkpoint.step} ({path})"
