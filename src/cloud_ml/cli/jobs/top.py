"""``cloudml jobs top`` and ``cloudml jobs metrics``: what jobs use."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from cloud_ml.cli.completion.candidates import job_names
from cloud_ml.cli.display import figures
from cloud_ml.cli.display.output import echo, echo_as, echo_table, output_option
from cloud_ml.cli.display.task_table import progress_words
from cloud_ml.cli.display.terminal import is_live
from cloud_ml.cli.options.numbers import Number
from cloud_ml.cli.session import Session, pass_session
from cloud_ml.errors import NotFound, TransportError, TryAgain

if TYPE_CHECKING:
    from cloud_ml.client import CloudMlClient
    from cloud_ml.models.jobs.job import Job, JobTask

    _Rows = list[tuple[Job, JobTask | None]]

_ACTIVE = "Restarting,Starting,Running,Finishing,Stopping"
_MOST = 100
_HEADER = ("JOB", "TASK", "STATE", "CPU", "MEMORY", "PEAK", "LIMIT", "PROCESSES", "FOR", "PROGRESS")
# Use the alternate screen and hide the cursor, so that the terminal looks as before afterwards.
_OTHER_SCREEN, _BACK, _REDRAW = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l", "\x1b[H\x1b[J"


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME...]", shell_complete=job_names)
@click.option(
    "--once", is_flag=True, help="Show it once; otherwise a terminal shows it until Ctrl-C."
)
@click.option(
    "--every",
    type=Number(1, 3600),
    default=2,
    show_default=True,
    metavar="SECONDS",
    help="How often.",
)
@output_option()
@pass_session
def top(
    session: Session, names: tuple[str, ...], *, once: bool, every: float, output: str | None
) -> None:
    """Show processors, memory and processes of running jobs, and what they report.

    CPU is in percent of one core. MEMORY is the latest sample, PEAK the highest one; a server
    samples every few seconds (its setting engine.usage_period_s).
    """
    rows = _rows(session.client, names)
    found = [_document(job, task) for job, task in rows]
    if echo_as(output, found, dict.fromkeys(job.name for job, _ in rows)):
        return
    if once or not is_live(sys.stdout):
        _show(rows)
        return
    _keep_showing(session.client, names, rows, every)


@click.command()
@click.argument("name", shell_complete=job_names)
@output_option()
@pass_session
def metrics(session: Session, name: str, output: str | None) -> None:
    """Show once what the tasks of a job use, or last used."""
    rows = _rows(session.client, [name])
    if not echo_as(output, [_document(job, task) for job, task in rows], name):
        _show(rows)


def _keep_showing(client: CloudMlClient, names: Sequence[str], rows: _Rows, every: float) -> None:
    """Show what jobs use on a screen of its own until Ctrl-C; a server that is away for a while
    comes back.
    """
    trouble = ""
    sys.stdout.write(_OTHER_SCREEN)
    try:
        while True:
            sys.stdout.write(_REDRAW)
            echo(
                f"{datetime.now(UTC).astimezone():%H:%M:%S}  {client.endpoint}  Ctrl-C ends "
                f"this  {trouble}\n"
            )
            most = max(shutil.get_terminal_size().lines - 4, 1)
            _show(rows[:most])
            sys.stdout.flush()
            time.sleep(every)
            try:
                rows, trouble = _rows(client, names), ""
            except (TransportError, TryAgain) as error:
                trouble = error.message
    except KeyboardInterrupt:
        pass
    finally:
        sys.stdout.write(_BACK)
        sys.stdout.flush()


def _rows(client: CloudMlClient, names: Sequence[str]) -> _Rows:
    """Each task of each job that holds a place, and the job alone where there is no task yet."""
    selected = names or [one.uid for one in client.list_train_jobs(state=_ACTIVE, limit=_MOST)]
    rows: _Rows = []
    for name in selected:
        try:
            job = client.describe_train_job(name)
            tasks = client.train_job_tasks(job.uid).items
        except NotFound:
            if name in names:
                raise
            continue  # it was deleted between the list and now
        rows += [(job, task) for task in tasks] or [(job, None)]
    return rows


def _show(rows: _Rows) -> None:
    if not rows:
        echo("No job is running.")
        return
    now = datetime.now(UTC)
    echo_table(_HEADER, [_cells(job, task, now) for job, task in rows], painted=2)


def _cells(job: Job, task: JobTask | None, now: datetime) -> tuple[str, ...]:
    began = (task.started_at if task else None) or job.starting_at or job.created_at
    until = (task.finished_at if task else None) or job.finished_at or now
    age = figures.span((until - began).total_seconds())
    if task is None:
        return (job.name, "", job.phase, "", "", "", "", "", age, "")
    cpu = (
        ""
        if task.cores is None
        else f"{task.cores:.0%}" + (f" of {task.cpu_limit:.0%}" if task.cpu_limit else "")
    )
    return (
        job.name,
        task.name,
        job.phase,
        cpu,
        _size(task.memory_bytes),
        _size(task.memory_peak_bytes),
        _size(task.memory_limit_bytes),
        "" if task.processes is None else str(task.processes),
        age,
        progress_words(task.progress) if task.progress else "",
    )


def _size(count: int | None) -> str:
    return "" if count is None else figures.size(count)


def _document(job: Job, task: JobTask | None) -> dict[str, Any]:
    from cloud_ml.models import codec

    return {
        "job": job.name,
        "uid": job.uid,
        "phase": job.phase,
        "attempt": job.attempt,
        "task": None,
    } | ({"task": codec.encode(task)} if task else {})
