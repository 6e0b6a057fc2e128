"""Following a job on the terminal: a line that says where it stands, its log above, and the verdict at the end."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cloud_ml.cli import figures
from cloud_ml.cli.advice import next_step
from cloud_ml.cli.exit_codes import exit_code_of
from cloud_ml.cli.guard import INTERRUPTED
from cloud_ml.cli.output import local_time, note
from cloud_ml.cli.progress import spinner
from cloud_ml.cli.terminal import above_the_line, is_live
from cloud_ml.errors import CloudMlError, NotFound
from cloud_ml.models.job import Job, JobTasks

if TYPE_CHECKING:
    from cloud_ml.client import CloudMlClient
    from cloud_ml.sdk.handles import JobHandle

LOOK_S = {"Starting": 1.0, "Running": 5.0}
"""How often the stage or the usage of a job is asked for while somebody watches it; usage is not sampled more often."""
NOTHING = -1
"""There was no output at all."""
_PREPARING = "preparing the environment"
TROUBLE_S = 3.0
"""How long is waited after an error before the next question."""
PARTING_S = 0.2
"""How long the end waits for the thread that asks."""
REST_S = 0.05
"""Between two questions, however fast the answers come."""
_STAGES = {"": _PREPARING, "claimed": _PREPARING, "environment": "starting the code"}


def print_log(chunks: Iterator[bytes], name: str, *, goes_on: bool) -> int:
    """Write a log to standard output as it comes; returns 0, NOTHING, or 130 when the user has seen enough.

    Ctrl-C ends the output, never the job; with ``goes_on`` a note says so.
    """
    out, code = sys.stdout.buffer, NOTHING
    try:
        for chunk in chunks:
            with above_the_line(sys.stdout, ends_line=chunk.endswith(b"\n"), goes_on=True):
                out.write(chunk)
                out.flush()
            code = 0
    except KeyboardInterrupt:
        if goes_on:
            note(
                f"\nNo longer following {name}; the job goes on.\n"
                f"  Follow it again: cloudml jobs logs {name} -f · end it: cloudml jobs cancel {name}"
            )
        return INTERRUPTED
    return code


def matching_lines(chunks: Iterator[bytes], wanted: re.Pattern[bytes], *, invert: bool = False) -> Iterator[bytes]:
    """The lines of a log in which ``wanted`` is found (or is not, with ``invert``), each as soon as it is complete."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        if found := [line + b"\n" for line in lines if bool(wanted.search(line)) is not invert]:
            yield b"".join(found)
    if rest and bool(wanted.search(rest)) is not invert:
        yield rest + b"\n"


def watch(client: CloudMlClient, handle: JobHandle) -> int:
    """Follow a job's state and log to its end and return the exit code that tells of it."""
    with spinner(state_line(handle.job)) as say, _states(client, handle.job, say):
        if print_log(handle.logs(follow=True), handle.name, goes_on=True) == INTERRUPTED:
            return INTERRUPTED
        job = handle.wait()
    conclude(job)
    return exit_code_of(job)


def conclude(job: Job) -> None:
    """Say how a job has ended and what can be done about it."""
    note(verdict(job), state=job.phase)
    if not job.succeeded and (advice := next_step(job)):
        note(f"  {advice}")


def wait_for(client: CloudMlClient, handle: JobHandle, timeout: float | None) -> Job:
    """Wait for a job's end, with a line that says where it stands.

    Raises:
        WaitTimedOut: It has not ended within ``timeout`` seconds.
    """
    with spinner(state_line(handle.job)) as say, _states(client, handle.job, say):
        return handle.wait(timeout)


def verdict(job: Job) -> str:
    """One sentence about a job that has ended."""
    took = ""
    if job.started_at and job.finished_at:
        took = f" after {figures.span((job.finished_at - job.started_at).total_seconds())}"
    if job.succeeded:
        return f"{job.name} succeeded{took}"
    what = "was stopped" if job.phase == "Stopped" else "failed"
    reason = "" if job.message.lower().startswith(job.reason.lower()) else job.reason  # some messages begin with it
    why = ": ".join(part for part in (reason, job.message) if part)
    return f"{job.name} {what}{took}" + (f": {why}" if why else "")


def state_line(job: Job, tasks: JobTasks | None = None) -> str:
    """Where a job stands, in one line."""
    what = job.phase
    if job.phase == "Queued":
        what = f"Queued: {job.message or 'waiting for a free place'}"
    elif job.phase == "Starting":
        what = f"Starting: {_stage_of(job, tasks)}"
    elif job.phase == "Restarting":
        what = f"Restarting: {job.message}" if job.message else "Restarting"
    elif job.phase == "Running" and tasks is not None:
        what = " · ".join(("Running", *_used(tasks)))
    elif job.phase == "Stopping":
        what = f"Stopping: {job.message}" if job.message else "Stopping"
    attempt = f" (attempt {job.attempt})" if job.attempt > 1 else ""
    return f"{job.name}{attempt}: {what}"


def _stage_of(job: Job, tasks: JobTasks | None) -> str:
    if job.message:
        return job.message
    stages = tasks.stages if tasks is not None else job.stages
    last = max(stages, key=lambda name: stages[name], default="")
    return _STAGES.get(last, last)


def _used(tasks: JobTasks) -> list[str]:
    running = [task for task in tasks.items if task.running]
    cores = [task.cores for task in running if task.cores is not None]
    memory = [task.memory_bytes for task in running if task.memory_bytes is not None]
    return [*([f"{sum(cores):.0%} CPU"] if cores else []), *([figures.size(sum(memory))] if memory else [])]


@contextmanager
def _states(client: CloudMlClient, job: Job, say: Callable[[str], None]) -> Iterator[None]:
    """Within this, every change of the job is said: on the drawn line, or as a line where none is drawn."""
    over = threading.Event()
    live = is_live(sys.stderr)

    def tell() -> None:
        handle, told = client.get_train_job(job.uid), state_line(job)
        while not over.is_set():
            now = handle.job
            if now.finished:
                return
            if live:
                say(state_line(now, handle.tasks() if now.phase in ("Starting", "Running") else None))
            elif (line := state_line(now)) != told:
                told = line
                note(f"{line}  [{local_time(now.updated_at)}]")
            handle.await_change(LOOK_S.get(now.phase) if live else None)
            over.wait(REST_S)

    def keep_telling() -> None:
        while not over.is_set():
            try:
                tell()
            except NotFound:
                return
            except CloudMlError as error:
                say(f"{job.name}: {error.message}; trying again")
                over.wait(TROUBLE_S)
            else:
                return

    teller = threading.Thread(target=keep_telling, name="states", daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join(PARTING_S)  # it may be waiting for an answer, which nobody needs any more
