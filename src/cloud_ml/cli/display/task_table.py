"""The tasks of a job as ``jobs describe`` shows them: a line for each, or of many a summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from cloud_ml.cli.display.figures import size, span
from cloud_ml.cli.display.terminal import columns, pad, plain

if TYPE_CHECKING:
    from cloud_ml.models.jobs.job import JobProgress, JobTask, JobTaskState

_MOST_LINES = 20
_METRICS = 5
_NOTHING_TO_SAY = ("the task completed", "the job completed")
"""The second is what servers of before say of a task."""
_GOOD = "Completed"
_ORDER = ("completed", "running", "restarting", "waiting", "cancelled", "failed")
_ALWAYS = ("  NAME", "STATE", "RESTARTS", "LAST END")
_LIVE_HEADER = ("  NAME", "STATE", "RESTARTS", "PROGRESS", "LAST END")
Task = TypeVar("Task", bound="JobTask | JobTaskState")


def state_of(task: JobTask | JobTaskState) -> str:
    """One word: ``Running``, ``Restarting``, ``Waiting``, or the reason of its end."""
    if task.running:
        return "Running"
    return "Restarting" if task.restarting else task.reason or "Waiting"


def summary(tasks: Sequence[JobTask | JobTaskState]) -> str:
    """Such as ``37 completed, 8 running, 54 waiting, 1 failed``."""
    words = [_word(state_of(task)) for task in tasks]
    counts = [(words.count(word), word) for word in _ORDER]
    return ", ".join(f"{count} {word}" for count, word in counts if count)


def table(tasks: Sequence[JobTask | JobTaskState]) -> tuple[list[str], list[list[str]]]:
    """The header and a line for each task. Of many, a few that failed, start again or run.

    What no task has is left out, and so is the node where there is only one.
    """
    shown = _select_notable(tasks)
    nodes = [one.node if len({task.node for task in tasks}) > 1 else "" for one in shown]
    columns_of = {
        "  NAME": [f"  {one.name}" for one in shown],
        "STATE": [state_of(one) for one in shown],
        "NODE": nodes,
        "ADDRESS": [one.address for one in shown],
        "RESTARTS": [str(one.restarts) for one in shown],
        "CORES": [_cores(one) for one in shown],
        "MEMORY": [_memory(one) for one in shown],
        "LAST END": [_last_end(one) for one in shown],
    }
    kept = {title: cells for title, cells in columns_of.items() if any(cells) or title in _ALWAYS}
    return list(kept), [list(row) for row in zip(*kept.values(), strict=True)]


def live_lines(tasks: Sequence[JobTask]) -> list[str]:
    """The same with what tasks report, aligned, to be drawn anew again and again."""
    table = [_LIVE_HEADER] + [
        (f"  {one.name}", state_of(one), str(one.restarts), _progress(one), _last_end(one))
        for one in _select_notable(tasks)
    ]
    widths = [max(columns(cell) for cell in column) for column in zip(*table, strict=True)]
    return [
        "  ".join(pad(plain(cell), width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]


def changes(
    before: Sequence[JobTask | JobTaskState], now: Sequence[JobTask | JobTaskState]
) -> list[str]:
    """A line for each task that has started again or failed since, of a few tasks."""
    known = {task.name: task for task in before}
    lines = []
    for task in now:
        earlier = known.get(task.name)
        again = task.restarts > (earlier.restarts if earlier else 0)
        failed = _word(state_of(task)) == "failed" and not _is_same(task, earlier)
        if again:
            lines.append(f"{task.name}: starts again ({task.restarts}): {task.last_end}")
        elif failed:
            lines.append(f"{task.name}: {_last_end(task)}")
    return lines[:_MOST_LINES]


def _is_same(task: JobTask | JobTaskState, earlier: JobTask | JobTaskState | None) -> bool:
    return earlier is not None and state_of(earlier) == state_of(task)


def progress_words(progress: JobProgress) -> str:
    """Such as ``step 5 of 20, 25%, about 3m left, loss 0.3``."""
    words = []
    if progress.step is not None:
        words.append(f"step {progress.step}" + (f" of {progress.of}" if progress.of else ""))
    if progress.fraction is not None:
        words.append(f"{progress.fraction:.0%}")
    if progress.remaining_s:
        words.append(f"about {span(progress.remaining_s)} left")
    shown = list(progress.metrics.items())[:_METRICS]
    words += [f"{name} {value:.4g}" for name, value in shown]
    return ", ".join(words)


def _select_notable(tasks: Sequence[Task]) -> list[Task]:
    if len(tasks) <= _MOST_LINES:
        return list(tasks)
    return [task for task in tasks if _is_notable(task)][:_MOST_LINES]


def _progress(task: JobTask) -> str:
    return progress_words(task.progress) if task.progress is not None else ""


def _word(state: str) -> str:
    return state.lower() if state.lower() in _ORDER else "failed"


def _is_notable(task: JobTask | JobTaskState) -> bool:
    return _word(state_of(task)) in ("failed", "running", "restarting") or task.restarts > 0


def _cores(task: JobTask | JobTaskState) -> str:
    cores: float | None = getattr(task, "cores", None)
    return "" if cores is None else f"{cores:.2f}"


def _memory(task: JobTask | JobTaskState) -> str:
    used: int | None = getattr(task, "memory_bytes", None)
    return "" if used is None else size(used)


def _last_end(task: JobTask | JobTaskState) -> str:
    if task.reason == _GOOD and task.message in _NOTHING_TO_SAY:
        return task.last_end
    return task.message or task.last_end
