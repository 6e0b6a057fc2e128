"""``cloudml jobs describe``: the story of a job."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from cloud_ml.cli.advice import next_step
from cloud_ml.cli.completing import job_names
from cloud_ml.cli.display import figures
from cloud_ml.cli.display.output import (
    echo,
    echo_as,
    echo_facts,
    echo_table,
    local_time,
    output_option,
    without_secrets,
)
from cloud_ml.cli.jobs.timeline import Span, spans, timeline
from cloud_ml.cli.session import Session, pass_session

if TYPE_CHECKING:
    from cloud_ml.client import CloudMlClient
    from cloud_ml.models.job import Job, JobEvent, JobTask, JobTasks

_EVENTS = 10
_OUTPUTS = 20


@click.command()
@click.argument("name", shell_complete=job_names)
@output_option()
@pass_session
def describe(session: Session, name: str, output: str | None) -> None:
    """Tell the story of a job: its stages, what it uses, its last events, why it ended and what
    to do next.
    """
    from cloud_ml.models import codec

    job = session.client.describe_train_job(name)
    if echo_as(output, {**codec.encode(job), "spec": without_secrets(job.spec)}, job.name):
        return
    tasks = None if job.finished else _tasks(session.client, job)
    now = datetime.now(UTC)
    echo_facts(facts(job, tasks, now), painted="State")
    if found := spans(job, tasks.stages if tasks else {}, now):
        _show_timeline(found, job)
    if job.finished:
        _show_outputs(session.client, job)
    _show_events(session.client.train_job_events(job.uid), now)
    if spec := {
        field: value for field, value in without_secrets(job.spec).items() if _is_told(value)
    }:
        echo("\nSubmitted as:")
        echo_facts({f"  {field}": _said(value) for field, value in spec.items()})
    if advice := next_step(job):
        echo(f"\n{advice}")


def facts(job: Job, tasks: JobTasks | None, now: datetime) -> dict[str, Any]:
    """Names and values, in the order of what is asked first."""
    usage = job.usage
    running = [task for task in tasks.items if task.running] if tasks else []
    return {
        "Name": job.name,
        "State": job.phase,
        "Deleting": "yes" if job.deleting else "",
        "Reason": job.reason,
        "Message": job.message,
        "Attempt": f"{job.attempt} of {retries + 1}"
        if (retries := _retries(job.spec))
        else job.attempt,
        "Exit code": job.exit_code,
        "Signal": job.signal,
        "Owner": f"{job.owner} of {job.org}",
        "Created": f"{local_time(job.created_at)} "
        f"({figures.span((now - job.created_at).total_seconds())} ago)",
        "Finished": local_time(job.finished_at),
        "Uses now": "; ".join(usage_of(task) for task in running),
        "CPU used": figures.span(usage.cpu_seconds) if usage.cpu_seconds else "",
        "Memory peak": figures.size(usage.memory_peak_bytes) if usage.memory_peak_bytes else "",
        "Node": job.node,
        "Runtime": job.runtime,
        "Trainer": job.trainer_digest,
        "Uid": job.uid,
    }


def usage_of(task: JobTask) -> str:
    """What a task uses, in a few words."""
    if task.cores is None or task.memory_bytes is None:
        return f"{task.name}: not measured yet"
    limit = f" of {figures.size(task.memory_limit_bytes)}" if task.memory_limit_bytes else ""
    return f"{task.name}: {task.cores:.0%} CPU, {figures.size(task.memory_bytes)}{limit}, {task.processes} processes"


def _show_timeline(found: Sequence[Span], job: Job) -> None:
    echo("\nTimeline" + (f" of attempt {job.attempt}:" if job.attempt > 1 else ":"))
    for line in timeline(found):
        echo(f"  {line}")


def _show_outputs(client: CloudMlClient, job: Job) -> None:
    from cloud_ml.cli.jobs.outputs import remarks

    files = list(islice(client.train_job_outputs(job.uid), _OUTPUTS + 1)) if job.outputs else []
    echo("\nOutputs:")
    if files:
        echo_table(
            ("  PATH", "SIZE", "MODIFIED"),
            [
                (f"  {file.path}", figures.size(file.size), local_time(file.modified))
                for file in files[:_OUTPUTS]
            ],
        )
    if len(files) > _OUTPUTS:
        echo(f"  … List all: cloudml jobs outputs {job.name}")
    for line in remarks(job, files):
        echo(f"  {line}")


def _show_events(events: Sequence[JobEvent], now: datetime) -> None:
    last = events[-_EVENTS:]
    if not last:
        return
    echo(
        "\nEvents:"
        if len(last) == len(events)
        else f"\nThe last {len(last)} of {len(events)} events:"
    )
    rows = [
        (
            f"  {figures.span((now - event.at).total_seconds())} ago",
            event.type,
            event.reason,
            event.message,
        )
        for event in last
    ]
    echo_table(("  WHEN", "TYPE", "REASON", "MESSAGE"), rows)


def _tasks(client: CloudMlClient, job: Job) -> JobTasks | None:
    from cloud_ml.errors import RequestError, TransportError

    with contextlib.suppress(RequestError, TransportError):  # an older server cannot tell
        return client.train_job_tasks(job.uid)
    return None


def _retries(spec: Mapping[str, Any]) -> int:
    retries = spec.get("max_retries")
    return retries if isinstance(retries, int) else 0


def _said(value: object) -> str:
    return shlex.join(map(str, value)) if isinstance(value, list) else str(value)


def _is_told(value: object) -> bool:
    return value not in (None, "", {}, False, 0) and value is not True
