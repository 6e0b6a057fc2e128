"""Where a job stands, told while somebody waits: the server says when it changes, nobody asks
again and again.
"""

from __future__ import annotations

import contextlib
import copy
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cloud_ml.cli.display import figures
from cloud_ml.cli.display.installing import Installing, Progress
from cloud_ml.cli.display.output import local_time, note
from cloud_ml.cli.display.progress import gauge
from cloud_ml.cli.display.task_table import changes, live_lines
from cloud_ml.cli.display.terminal import is_live, plain
from cloud_ml.errors import CloudMlError, NotFound
from cloud_ml.models.jobs.job import Job, JobTasks

if TYPE_CHECKING:
    from cloud_ml.sdk.jobs.handles import JobHandle

LOOK_S = {"Starting": 1.0, "Running": 5.0}
"""How often the stage or the usage of a job is asked for while somebody watches it; usage is not
sampled more often.
"""
TROUBLE_S = 3.0
"""How long is waited after an error before the next question."""
TASKS_S = 2.0
"""How often a job of several tasks is asked about them, which report their progress."""
PARTING_S = 0.2
"""How long the end waits for the threads that ask."""
_PREPARING = "preparing the environment"
_STAGES = {
    "": _PREPARING,
    "claimed": _PREPARING,
    "fetched": "resolving what the trainer requires",
    "resolved": "installing packages",
    "installed": _PREPARING,
    "environment": "starting the code",
}


def state_line(job: Job, tasks: JobTasks | None = None, installing: Progress | None = None) -> str:
    """Where a job stands, in one line; with a bar while packages are installed for it."""
    what = job.phase
    if job.phase == "Queued":
        what = f"Queued: {job.message or 'waiting for a free place'}"
    elif job.phase == "Starting":
        what = f"Starting: {_stage_of(job, tasks, installing)}"
    elif job.phase == "Restarting":
        what = f"Restarting: {job.message}" if job.message else "Restarting"
    elif job.phase == "Running" and tasks is not None:
        what = " · ".join(("Running", *_format_usage(tasks)))
    elif job.phase in ("Finishing", "Stopping") and job.message:
        what = f"{job.phase}: {job.message}"
    if job.deleting:
        what = f"Deleting: {what}"
    attempt = f" (attempt {job.attempt})" if job.attempt > 1 else ""
    return f"{job.name}{attempt}: {what}"


def installation(now: Progress) -> str:
    """How far an installation of packages is; with a bar once there is something big to
    download.
    """
    what = f"{'compiling' if now.compiling else 'installing'} {now.packages} package{'s' * (now.packages != 1)}"
    if not now.total or now.compiling:
        return what
    amount = f"{what} {gauge(now.done / now.total)} {figures.size(now.done)} of {figures.size(now.total)}"
    return f"{amount} · {now.current}" if now.current else amount


def _stage_of(job: Job, tasks: JobTasks | None, installing: Progress | None) -> str:
    if job.message:
        return job.message
    if installing is not None:
        return installation(installing)
    stages = tasks.stages if tasks is not None else job.stages
    last = max(stages, key=lambda name: stages[name], default="")
    return _STAGES.get(last, last)


def _format_usage(tasks: JobTasks) -> list[str]:
    running = [task for task in tasks.items if task.running]
    cores = [task.cores for task in running if task.cores is not None]
    memory = [task.memory_bytes for task in running if task.memory_bytes is not None]
    return [
        *([f"{sum(cores):.0%} CPU"] if cores else []),
        *([figures.size(sum(memory))] if memory else []),
    ]


def _pause(job: Job) -> float | None:
    """How long to wait until a job is looked at again that has not changed; ``None`` for ever."""
    pause = LOOK_S.get(job.phase)
    return pause if len(job.tasks) < 2 else min(pause or TASKS_S, TASKS_S)


def _table(tasks: JobTasks | None) -> list[str]:
    """A line for each task of a job of several."""
    items = [] if tasks is None else tasks.items
    return live_lines(items) if len(items) > 1 else []


@contextmanager
def states(
    handle: JobHandle, say: Callable[[str], None], installing: Installing | None = None
) -> Iterator[None]:
    """Within this, every change of the job is said: on the drawn line, or as a line where none is
    drawn.

    ``installing`` is fed with the job's log by whoever follows it.
    """
    teller = _Teller(handle, say, installing or Installing())
    threads = [
        threading.Thread(target=run, name="states", daemon=True)
        for run in (teller.listen, teller.tell)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        teller.stop()
        for thread in threads:
            thread.join(PARTING_S)  # it may be waiting for an answer, which nobody needs any more


class _Teller:
    """One thread listens for changes, the other one says them and what the job uses meanwhile."""

    def __init__(
        self, handle: JobHandle, say: Callable[[str], None], installing: Installing
    ) -> None:
        self._handle = copy.copy(handle)
        self._installing = installing
        self._say = say
        self._live = is_live(sys.stderr)
        self._over = False
        self._news = threading.Event()
        installing.changed = self._news.set
        self._last_line = state_line(handle.job)
        self._tasks, self._attempt = handle.job.tasks, handle.job.attempt

    def stop(self) -> None:
        """Say no more."""
        self._over = True
        self._news.set()

    def listen(self) -> None:
        """Keep the handle up to date, by a stream of changes; by asking where the server has
        none for us.
        """
        with contextlib.suppress(NotFound):
            try:
                for _ in self._handle.watch():
                    self._news.set()
                    if self._over:
                        return
            except NotFound:
                raise
            except CloudMlError:  # too many streams of this key, say
                self._ask()
        if not self._handle.finished:  # it is gone
            self.stop()

    def _ask(self) -> None:
        while not self._over and not self._handle.finished:
            try:
                self._handle.await_change()
            except NotFound:
                raise
            except CloudMlError:
                threading.Event().wait(TROUBLE_S)
            self._news.set()

    def tell(self) -> None:
        """Say what is new, at once, and what goes on, now and then."""
        while not self._over:
            self._news.clear()
            now, pause = self._handle.job, None
            if self._live:
                pause = _pause(now)
                installing = (
                    self._installing.now if now.phase == "Starting" and not now.message else None
                )
                try:  # the log tells more of an installation than the stages do
                    fetch_tasks = pause is not None and installing is None
                    tasks = self._handle.tasks() if fetch_tasks else None
                    self._say(
                        "\n".join([plain(state_line(now, tasks, installing)), *_table(tasks)])
                    )
                except NotFound:
                    return
                except CloudMlError as error:
                    self._say(f"{now.name}: {error.message}; trying again")
                    pause = TROUBLE_S
            elif not now.finished:
                self._note_changes(now)
            if now.finished:
                return
            self._news.wait(pause)

    def _note_changes(self, now: Job) -> None:
        """A line for what is new of the job and of its tasks."""
        at = local_time(now.updated_at)
        before = self._tasks if now.attempt == self._attempt else []
        lines = [f"{now.name}: {line}" for line in changes(before, now.tasks)]
        if (line := state_line(now)) != self._last_line:
            self._last_line = line
            lines.insert(0, line)
        self._tasks, self._attempt = now.tasks, now.attempt
        for line in lines:
            note(f"{line}  [{at}]")
