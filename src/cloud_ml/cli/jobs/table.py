"""The table of ``cloudml jobs list``."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from cloud_ml.cli.display import figures
from cloud_ml.cli.display.output import local_time
from cloud_ml.errors import NotFound

if TYPE_CHECKING:
    from cloud_ml.client import CloudMlClient
    from cloud_ml.models.jobs.job import JobDetails, JobSummary

HEADER = ("NAME", "STATE", "REASON", "DURATION", "CREATED")
WIDE_HEADER = (*HEADER, "UPDATED", "EXIT CODE", "OWNER", "ORG", "UID", "ARGUMENTS")
PROGRESS = "progress"
"""The name of a further column that is no metric."""
_SAME_AS_STATE = frozenset(
    {"Submitted", "Saved", "Paused", "Starting", "Started", "Stopping", "Completed"}
)
"""Reasons that say no more than the state beside them."""
_EXCEPTION = re.compile(
    r" exited with code \d+(?: \([^)]{1,200}\))?: (?:\w{1,80}\.){0,8}"
    r"(?=\w*[a-z])([A-Z]\w{0,80}[A-Z]\w{1,80})(?:[:;]| \(|$)"
)
"""Such as ``ModuleNotFoundError``: a word with a capital inside, which a sentence does not have."""


def header(*, wide: bool, columns: Sequence[str] = ()) -> tuple[str, ...]:
    """The names of the columns; ``columns``, of metrics and ``PROGRESS``, are the last."""
    return (*(WIDE_HEADER if wide else HEADER), *(name.upper() for name in columns))


def progress_of(client: CloudMlClient, jobs: Sequence[JobSummary]) -> dict[str, str]:
    """How far those jobs are that run and tell it, by uid: what the first task says that does."""
    from cloud_ml.cli.display.task_table import progress_words

    found = {}
    for job in jobs:
        if job.phase != "Running":
            continue
        with contextlib.suppress(NotFound):  # deleted between the list and now
            tasks = client.train_job_tasks(job.uid).items
            progress = next((task.progress for task in tasks if task.progress), None)
            found[job.uid] = progress_words(progress) if progress else ""
    return found


def rows(
    jobs: Sequence[JobSummary],
    now: datetime,
    *,
    wide: bool,
    columns: Sequence[str] = (),
    progress: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[tuple[str, ...]]:
    """A row for each job, with the columns of ``header``."""
    for job in jobs:
        details = job.details
        cells: tuple[str, ...] = (
            job.name,
            "Deleting" if job.deleting else job.phase,
            _reason(details) if details else "",
            _duration(details, now) if details else "",
            local_time(job.created_at),
        )
        if wide:
            cells = (*cells, *_wide_cells(job, details))
        further = (
            progress.get(job.uid, "") if name == PROGRESS else _value(job, name) for name in columns
        )
        yield (*cells, *further)


def _reason(details: JobDetails) -> str:
    """The reason; of code that raised an exception, the exception's type, by which runs are told
    apart at a glance.
    """
    if details.reason in _SAME_AS_STATE:
        return ""
    if details.reason == "NonZeroExit" and (match := _EXCEPTION.search(details.message)):
        return match[1]
    return details.reason


def _duration(details: JobDetails, now: datetime) -> str:
    """How long the job ran, or has been running."""
    if details.started_at is None:
        return ""
    return figures.span(((details.finished_at or now) - details.started_at).total_seconds())


def _value(job: JobSummary, metric: str) -> str:
    """The last value of a metric; ``-`` where the job has not reported it."""
    value = (job.metrics or {}).get(metric)
    return "-" if value is None else figures.number(float(value))


def _wide_cells(job: JobSummary, details: JobDetails | None) -> tuple[str, ...]:
    from shlex import join  # the usual table does without

    code = details.exit_code if details else None
    arguments = join(details.arguments) if details else ""
    return (
        local_time(job.updated_at),
        "" if code is None else str(code),
        job.owner,
        job.org,
        job.uid,
        arguments,
    )
