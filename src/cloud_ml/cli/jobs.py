"""``cloudml jobs``: all but ``submit``, which has a file of its own."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from cloud_ml.cli.lazy import Lazy, LazyGroup
from cloud_ml.cli.output import (
    echo,
    echo_facts,
    echo_json,
    echo_table,
    local_time,
    note,
    output_option,
    without_secrets,
)
from cloud_ml.cli.session import Session, pass_session

if TYPE_CHECKING:
    from cloud_ml.models.job import Job

_SUBMIT = Lazy("cloud_ml.cli.submit:submit", "Submit a train job.")


@click.group(cls=LazyGroup, lazy={"submit": _SUBMIT})
def jobs() -> None:
    """Train jobs."""


@jobs.command("list")
@output_option("wide", "json", "name")
@click.option("--state", metavar="STATE,…", help="Only jobs in these states, such as running,failed.")
@click.option("--limit", type=click.IntRange(0), default=200, show_default=True, help="At most so many; 0 means all.")
@pass_session
def list_jobs(session: Session, output: str | None, state: str | None, limit: int) -> None:
    """List jobs, newest first."""
    found = session.client.list_train_jobs(state=state, limit=limit + 1 if limit else None)
    shown = list(islice(found, limit or None))
    if output == "json":
        from cloud_ml.models import codec

        echo_json([codec.encode(job) for job in shown])
    elif output == "name":
        for job in shown:
            echo(job.name)
    else:
        wide = output == "wide"
        rows = [
            (
                job.name,
                "Deleting" if job.deleting else job.phase,
                local_time(job.created_at),
                local_time(job.updated_at),
                *((job.owner, job.org, job.uid) if wide else ()),
            )
            for job in shown
        ]
        header = ("NAME", "STATE", "CREATED", "UPDATED", *(("OWNER", "ORG", "UID") if wide else ()))
        echo_table(header, rows, painted=1)
    if next(found, None) is not None:
        note(f"There are more than {limit}; --limit 0 shows them all.")


@jobs.command()
@click.argument("name")
@output_option("json")
@pass_session
def describe(session: Session, name: str, output: str | None) -> None:
    """Show everything about a job."""
    job = session.client.describe_train_job(name)
    if output == "json":
        from cloud_ml.models import codec

        echo_json({**codec.encode(job), "spec": without_secrets(job.spec)})
        return
    echo_facts(_facts(job), painted="State")
    spec = without_secrets(job.spec)
    if spec:
        echo("\nSubmitted as:")
        echo_facts({f"  {field}": value for field, value in spec.items() if value not in (False, 0)})


@jobs.command()
@click.argument("name")
@click.option(
    "-f", "--follow", is_flag=True, help="Go on until the job has ended. Ctrl-C ends the output, not the job."
)
@click.option("-n", "--lines", type=click.IntRange(0), help="Only the last so many lines.")
@click.option("--attempt", type=click.IntRange(1), help="Only this attempt; otherwise all, one behind the other.")
@click.option("--task", metavar="TASK", help="Such as worker-0; otherwise the decisive one.")
@pass_session
def logs(session: Session, name: str, *, follow: bool, lines: int | None, attempt: int | None, task: str | None) -> int:
    """Print the output of a job."""
    from cloud_ml.cli.watching import print_log

    chunks = session.client.train_job_logs(name, follow=follow, lines=lines, attempt=attempt, task=task)
    return print_log(chunks, name, goes_on=follow)


@jobs.command()
@click.argument("name")
@output_option("json")
@pass_session
def events(session: Session, name: str, output: str | None) -> None:
    """List what happened to a job, and why."""
    found = session.client.train_job_events(name)
    if output == "json":
        from cloud_ml.models import codec

        echo_json([codec.encode(event) for event in found])
        return
    rows = [(local_time(event.at), event.type, event.reason, event.message) for event in found]
    echo_table(("TIME", "TYPE", "REASON", "MESSAGE"), rows)


@jobs.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@pass_session
def cancel(session: Session, names: tuple[str, ...]) -> None:
    """End jobs wherever they stand. What they wrote stays."""
    for name in names:
        job = session.client.cancel_train_job(name)
        echo(f"{job.name} {'is cancelled' if job.finished else 'is being stopped'}")


@jobs.command()
@click.argument("name")
@pass_session
def start(session: Session, name: str) -> None:
    """Start a job that was submitted with --save_mode."""
    job = session.client.start_train_job(name)
    echo(f"{job.name} is started")


@jobs.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@pass_session
def delete(session: Session, names: tuple[str, ...]) -> None:
    """Remove jobs and their logs. One that runs is stopped first."""
    for name in names:
        job = session.client.delete_train_job(name)
        echo(f"{job.name} is being deleted")


def _facts(job: Job) -> dict[str, Any]:
    usage = job.usage
    return {
        "Name": job.name,
        "State": job.phase,
        "Deleting": "yes" if job.deleting else "",
        "Reason": job.reason,
        "Message": job.message,
        "Attempt": job.attempt,
        "Exit code": job.exit_code,
        "Signal": job.signal,
        "Owner": f"{job.owner} of {job.org}",
        "Uid": job.uid,
        "Created": local_time(job.created_at),
        "Queued": local_time(job.queued_at),
        "Starting": local_time(job.starting_at),
        "Started": local_time(job.started_at),
        "Finished": local_time(job.finished_at),
        "Ran for": _duration(job),
        "Node": job.node,
        "Runtime": job.runtime,
        "Trainer": job.trainer_digest,
        "CPU used": f"{usage.cpu_seconds:.1f} s" if usage.cpu_seconds else "",
        "Memory peak": f"{usage.memory_peak_bytes / 2**20:.0f} MiB" if usage.memory_peak_bytes else "",
    }


def _duration(job: Job) -> str:
    if job.started_at is None:
        return ""
    end = job.finished_at or datetime.now(UTC)
    return f"{(end - job.started_at).total_seconds():.1f} s"
