"""``cloudml jobs describe``: the story of a job."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from cloud_ml.cli.completion.candidates import job_names
from cloud_ml.cli.display import figures, task_table
from cloud_ml.cli.display.advice import next_step
from cloud_ml.cli.display.output import (
    echo,
    echo_as,
    echo_facts,
    echo_table,
    local_time,
    output_option,
    without_secrets,
)
from cloud_ml.cli.jobs.recovery_facts import find_checkpoint_given, recovery_facts
from cloud_ml.cli.jobs.timeline import Span, spans, timeline
from cloud_ml.cli.options.other_org import other_org_option
from cloud_ml.cli.session import Session, pass_session

if TYPE_CHECKING:
    from cloud_ml.client import CloudMlClient
    from cloud_ml.models.jobs.job import Job, JobEvent, JobTask, JobTasks
    from cloud_ml.models.tracking.metrics import MetricSeries

_ZERO_SAYS_SOMETHING = frozenset({"max_retries", "task_retries"})
_EVENTS = 10
_OUTPUTS = 20
_USES = 8
"""Tasks of which it is told what they use and how far they are."""


@click.command()
@click.argument("name", shell_complete=job_names)
@output_option()
@other_org_option
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
    known = facts(job, tasks, now)
    known |= _metrics_of(session.client, job)
    events = session.client.train_job_events(job.uid)
    known["Restore from"] = find_checkpoint_given(events)
    echo_facts(known, painted="State")
    _show_tasks(job, tasks)
    if found := spans(job, tasks.stages if tasks else {}, now):
        _show_timeline(found, job)
    if job.finished:
        _show_outputs(session.client, job)
    _show_events(events, now)
    if spec := {
        field: value
        for field, value in without_secrets(job.spec).items()
        if _is_shown(field, value)
    }:
        echo("\nSubmitted as:")
        echo_facts({f"  {field}": _format_value(value) for field, value in spec.items()})
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
        "Attempt": f"{job.attempt} ({job.retries_used} of {job.max_retries} retries used)"
        if job.max_retries
        else job.attempt,
        "Task restarts": f"{job.task_restarts_used} in earlier attempts"
        if job.task_restarts_used
        else "",
        "World": ", ".join(f"{role}: {count}" for role, count in job.world.items()),
        "Memory limit": "; ".join(_memory_of(job)),
        "Exit code": job.exit_code,
        "Signal": job.signal,
        "Owner": f"{job.owner} of {job.org}",
        "Created": f"{local_time(job.created_at)} "
        f"({figures.span((now - job.created_at).total_seconds())} ago)",
        "Finished": local_time(job.finished_at),
        "Uses now": _uses_now(running),
        "Progress": "; ".join(_progress_of(running[:_USES])),
        "Checkpoint": _checkpoint_of(job, now),
        "CPU used": figures.span(usage.cpu_seconds) if usage.cpu_seconds else "",
        "Memory peak": figures.size(usage.memory_peak_bytes) if usage.memory_peak_bytes else "",
        "Node": job.node,
        "Runtime": job.runtime,
        "Trainer": job.trainer_digest,
        "Uid": job.uid,
    }


def _checkpoint_of(job: Job, now: datetime) -> str:
    """The newest one, such as ``step 900 (ckpt-900), saved 12s ago``."""
    newest = job.checkpoint
    if newest is None:
        return ""
    what = newest.path if newest.step is None else f"step {newest.step} ({newest.path})"
    age_s = max(0.0, (now - newest.saved_at).total_seconds())
    return f"{what}, saved {figures.span(age_s)} ago"


def _memory_of(job: Job) -> list[str]:
    """The limits that have grown, such as ``from 600M to 900M``."""
    from cloud_ml.models.common import format_memory

    limits = [
        (one.role, f"from {format_memory(one.first_bytes)} to {format_memory(one.limit_bytes)}")
        for one in job.memory
    ]
    alone = not job.tasks
    return [words if alone else f"{role}: {words}" for role, words in limits]


def usage_of(task: JobTask) -> str:
    """What a task uses, in a few words."""
    if task.cores is None or task.memory_bytes is None:
        return f"{task.name}: not measured yet"
    limit = f" of {figures.size(task.memory_limit_bytes)}" if task.memory_limit_bytes else ""
    return f"{task.name}: {task.cores:.0%} CPU, {figures.size(task.memory_bytes)}{limit}, {task.processes} processes"


def _progress_of(tasks: Sequence[JobTask]) -> list[str]:
    """What tasks report, in a few words each."""
    reports = [
        (task.name, task_table.progress_words(task.progress)) for task in tasks if task.progress
    ]
    alone = len(tasks) == 1
    return [words if alone else f"{name}: {words}" for name, words in reports]


def _metrics_of(client: CloudMlClient, job: Job) -> dict[str, str]:
    """The last values of metrics, and the histograms, images and the like in event files; of a
    server that keeps none, nothing.
    """
    from cloud_ml.cli.display.summary_tags import summary_words
    from cloud_ml.errors import NotFound

    try:
        found = client.train_job_metrics(job.uid)
    except NotFound:
        return {}
    return {
        "Metrics": "; ".join(_metric_words(found.items, job)),
        "Summaries": "; ".join(summary_words(found.summaries, job, _USES)),
    }


def _metric_words(found: Sequence[MetricSeries], job: Job) -> list[str]:
    """Such as ``loss 0.25 (step 300)``."""
    from cloud_ml.cli.display.figures import number

    tasks = {one.task for one in found}
    shown = [
        ("" if len(tasks) == 1 else f"{one.task} ")
        + f"{one.name} {number(float(one.last))} (step {one.last_step})"
        for one in found[:_USES]
    ]
    more = len(found) - len(shown)
    return [*shown, f"{more} more: cloudml runs metrics {job.name}"] if more > 0 else shown


def _uses_now(running: Sequence[JobTask]) -> str:
    """What a job of one task uses; those of several have lines of their own."""
    return usage_of(running[0]) if len(running) == 1 else ""


def _show_tasks(job: Job, live: JobTasks | None) -> None:
    """Those of a job of several, as they are now or as they ended, and what failures have cost."""
    shown = live.items if live is not None and len(live.items) > 1 else job.tasks
    if shown:
        echo(f"\nTasks: {task_table.summary(shown)}")
        header, rows = task_table.table(shown)
        if rows:
            echo_table(header, rows)
    if recoveries := recovery_facts(job.recoveries):
        echo("")
        echo_facts(recoveries)


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


def _format_value(value: object) -> str:
    if isinstance(value, dict):
        return json.dumps(_without_gaps(value))
    return shlex.join(map(str, value)) if isinstance(value, list) else str(value)


def _without_gaps(value: object) -> object:
    """Without what was not set, in objects within objects, too."""
    if isinstance(value, dict):
        return {name: _without_gaps(one) for name, one in value.items() if one is not None}
    return [_without_gaps(one) for one in value] if isinstance(value, list) else value


def _is_shown(field: str, value: object) -> bool:
    if field in _ZERO_SAYS_SOMETHING and value is not None:
        return True
    return value not in (None, "", {}, False, 0) and value is not True
