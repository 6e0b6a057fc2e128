"""Following a job's log on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cloud_ml.cli.exit_codes import exit_code_of
from cloud_ml.cli.guard import INTERRUPTED
from cloud_ml.cli.output import note
from cloud_ml.models.job import Job

if TYPE_CHECKING:
    from cloud_ml.sdk.handles import JobHandle


def print_log(chunks: Iterator[bytes], name: str, *, goes_on: bool) -> int:
    """Write a log to standard output as it comes; returns 0, or 130 when the user has seen enough.

    Ctrl-C ends the output, never the job; with ``goes_on`` a note says so.
    """
    out = sys.stdout.buffer
    try:
        for chunk in chunks:
            out.write(chunk)
            out.flush()
    except KeyboardInterrupt:
        if goes_on:
            note(
                f"\nNo longer following {name}; the job goes on.\n"
                f"  Follow it again: cloudml jobs logs {name} -f · end it: cloudml jobs cancel {name}"
            )
        return INTERRUPTED
    return 0


def watch(handle: JobHandle) -> int:
    """Follow a job to its end and return the exit code that tells of it."""
    if interrupted := print_log(handle.logs(follow=True), handle.name, goes_on=True):
        return interrupted
    job = handle.wait()
    note(verdict(job))
    return exit_code_of(job)


def verdict(job: Job) -> str:
    """One sentence about a job that has ended."""
    took = ""
    if job.started_at and job.finished_at:
        took = f" after {(job.finished_at - job.started_at).total_seconds():.1f} s"
    if job.succeeded:
        return f"{job.name} succeeded{took}"
    what = "was stopped" if job.phase == "Stopped" else "failed"
    reason = "" if job.message.startswith(job.reason) else job.reason  # messages about limits begin with it
    why = ": ".join(part for part in (reason, job.message) if part)
    return f"{job.name} {what}{took}" + (f": {why}" if why else "")
