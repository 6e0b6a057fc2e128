"""Following a job on the terminal: a line that says where it stands, its log above, and the
verdict at the end.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cloud_ml.cli.display import figures
from cloud_ml.cli.display.advice import next_step
from cloud_ml.cli.display.harmless import Harmless
from cloud_ml.cli.display.installing import Installing
from cloud_ml.cli.display.output import note
from cloud_ml.cli.display.progress import spinner
from cloud_ml.cli.display.states import state_line, states
from cloud_ml.cli.display.terminal import above_the_line
from cloud_ml.cli.exit_codes import exit_code_of
from cloud_ml.cli.guard import INTERRUPTED
from cloud_ml.errors import CloudMlError
from cloud_ml.models.jobs.job import Job

if TYPE_CHECKING:
    from cloud_ml.sdk.jobs.handles import JobHandle

NOTHING = -1
"""There was no output at all."""
_MISSING_FILES = frozenset({"OutputsNotSaved", "FilesNotKept"})
"""Reasons of the events that tell of files which are gone."""


def print_log(chunks: Iterator[bytes], name: str, *, goes_on: bool) -> int:
    """Write a log to standard output as it comes; returns 0, NOTHING, or 130 when the user has seen
    enough.

    Ctrl-C ends the output, never the job; with ``goes_on`` a note says so.
    """
    out, code = sys.stdout.buffer, NOTHING
    shown = Harmless() if sys.stdout.isatty() else bytes
    try:
        for chunk in map(shown, chunks):
            with above_the_line(sys.stdout, ends_line=chunk.endswith(b"\n"), goes_on=True):
                out.write(chunk)
                out.flush()
            code = 0
    except KeyboardInterrupt:
        if goes_on:
            note(
                f"\nStopped watching {name}; the job keeps running.\n"
                f"  Watch it again: cloudml jobs logs {name} -f · cancel it: cloudml jobs "
                f"cancel {name}"
            )
        return INTERRUPTED
    return code


def matching_lines(
    chunks: Iterator[bytes], pattern: re.Pattern[bytes], *, invert: bool = False
) -> Iterator[bytes]:
    """The lines of a log in which ``pattern`` is found (or is not, with ``invert``), each as soon
    as it is complete.
    """
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        if found := [line + b"\n" for line in lines if bool(pattern.search(line)) is not invert]:
            yield b"".join(found)
    if rest and bool(pattern.search(rest)) is not invert:
        yield rest + b"\n"


_PREFIX = re.compile(rb"\[[a-z0-9-]+-\d+\] ")
_STAMPED_PREFIX = re.compile(rb"(\S+ )\[[a-z0-9-]+-\d+\] ")


def without_prefixes(chunks: Iterator[bytes], *, timestamps: bool) -> Iterator[bytes]:
    """The lines of several tasks without the names of the tasks, each as soon as it is complete."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield b"".join(_without_prefix(line, timestamps=timestamps) + b"\n" for line in lines)
    if rest:
        yield _without_prefix(rest, timestamps=timestamps)


def _without_prefix(line: bytes, *, timestamps: bool) -> bytes:
    if found := (_STAMPED_PREFIX if timestamps else _PREFIX).match(line):
        return line[: found.end(1)] + line[found.end() :] if timestamps else line[found.end() :]
    return line


def watch(handle: JobHandle) -> int:
    """Follow a job's state and log to its end and return the exit code that tells of it."""
    installing = Installing()
    with spinner(state_line(handle.job)) as say, states(handle, say, installing):
        if (
            print_log(installing.passing(handle.logs(follow=True)), handle.name, goes_on=True)
            == INTERRUPTED
        ):
            return INTERRUPTED
        job = handle.wait()
    conclude(handle, job)
    return exit_code_of(job)


def conclude(handle: JobHandle, job: Job) -> None:
    """Say how a job has ended, what of its outputs is missing, and what can be done about it."""
    note(verdict(job), state=job.phase)
    for sentence in _missing_files(handle, job):
        note(f"  {sentence}", state="Failed")
    if not job.succeeded and (advice := next_step(job)):
        note(f"  {advice}")


def _missing_files(handle: JobHandle, job: Job) -> list[str]:
    """A sentence for each reason why files of a job were not saved or kept."""
    not_kept = job.outputs.not_kept if job.outputs is not None else 0
    try:
        events = handle.events()
    except CloudMlError:  # how the job has ended is said already
        if not not_kept:
            return []
        return [
            f"{figures.files(not_kept)} could not be saved. See why: cloudml jobs events {job.name}"
        ]
    return [
        event.message
        for event in events
        if event.reason in _MISSING_FILES and event.type == "Warning"
    ]


def wait_for(handle: JobHandle, timeout: float | None) -> Job:
    """Wait for a job's end, with a line that says where it stands.

    Raises:
        WaitTimedOut: It has not ended within ``timeout`` seconds.
    """
    with spinner(state_line(handle.job)) as say, states(handle, say):
        return handle.wait(timeout)


def verdict(job: Job) -> str:
    """One sentence about a job that has ended."""
    took = ""
    if job.started_at and job.finished_at:  # of the last attempt
        attempt = f" in attempt {job.attempt}," if job.attempt > 1 else ""
        seconds = (job.finished_at - job.started_at).total_seconds()
        took = f"{attempt} after {figures.span(seconds)}"
    if job.succeeded:
        return f"{job.name} succeeded{took}"
    what = "was stopped" if job.phase == "Stopped" else "failed"
    # Some messages begin with the reason.
    reason = "" if job.message.lower().startswith(job.reason.lower()) else job.reason
    why = ": ".join(part for part in (reason, job.message) if part)
    return f"{job.name} {what}{took}" + (f": {why}" if why else "")
