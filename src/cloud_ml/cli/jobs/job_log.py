"""``cloudml jobs logs``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from cloud_ml.cli.completion.candidates import job_names
from cloud_ml.cli.display.output import note
from cloud_ml.cli.jobs.times import moment
from cloud_ml.cli.options.base import Option
from cloud_ml.cli.options.numbers import WholeNumber
from cloud_ml.cli.options.other_org import other_org_option
from cloud_ml.cli.session import Session, pass_session

if TYPE_CHECKING:
    from cloud_ml.models.jobs.job import Job


@click.command()
@click.argument("name", shell_complete=job_names)
@click.option(
    "-f",
    "--follow",
    is_flag=True,
    help="Follow until the job has ended. Ctrl-C stops the output, not the job.",
)
@click.option(
    "-n",
    "--lines",
    cls=Option,
    aliases=("--tail",),
    type=WholeNumber(0),
    help="Only this many last lines.",
)
@click.option(
    "--attempt",
    type=WholeNumber(1),
    help="Only this attempt; by default all, one after the other.",
)
@click.option("--task", metavar="TASK", help="Such as worker-0; by default the lines of all tasks.")
@click.option("--role", metavar="ROLE", help="Only the tasks of this role, such as ps.")
@click.option(
    "--no-prefix",
    "prefix",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Print the lines of several tasks without the names of their tasks.",
)
@click.option(
    "--since",
    cls=Option,
    aliases=("--since-time",),
    metavar="TIME",
    help="Only what was written since then: 10m (ago), 2026-01-31T12:00.",
)
@click.option("--timestamps", is_flag=True, help="Print a time in UTC before each line.")
@click.option(
    "--no-installation",
    "installation",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Only the output of your code, byte for byte: nothing of the installation.",
)
@click.option("--grep", "pattern", metavar="REGEX", help="Only lines that match; -n counts before.")
@click.option("-i", "--ignore-case", is_flag=True, help="With --grep: ignore case.")
@click.option("--invert-match", is_flag=True, help="With --grep: only lines that do not match.")
@other_org_option
@pass_session
def logs(
    session: Session,
    name: str,
    *,
    follow: bool,
    lines: int | None,
    attempt: int | None,
    task: str | None,
    role: str | None,
    prefix: bool,
    since: str | None,
    timestamps: bool,
    installation: bool,
    pattern: str | None,
    ignore_case: bool,
    invert_match: bool,
) -> int:
    """Print the output of a job, as it was written."""
    from cloud_ml.cli.display.watching import NOTHING, matching_lines, print_log, without_prefixes

    if pattern is None and (ignore_case or invert_match):
        raise click.UsageError("--ignore-case and --invert-match belong to --grep")
    if since is not None and lines is not None:
        raise click.UsageError("--since and --lines exclude each other")
    expression = None if pattern is None else _expression(pattern, ignore_case=ignore_case)
    if follow and session.client.describe_train_job(name).phase == "Paused":
        note(f"{name} is paused. Its log goes on when it is resumed: cloudml jobs resume {name}")
    chunks: Iterator[bytes] = session.client.train_job_logs(
        name,
        follow=follow,
        lines=lines,
        attempt=attempt,
        task=task,
        role=role,
        since=moment("--since", since),
        installation=installation,
        timestamps=timestamps,
    )
    if not prefix:
        chunks = without_prefixes(chunks, timestamps=timestamps)
    if expression is not None:
        chunks = matching_lines(chunks, expression, invert=invert_match)
    printed = print_log(chunks, name, goes_on=follow)
    if printed == NOTHING:
        job = session.client.describe_train_job(name)
        chosen = (since, task, role, pattern)
        whole = lines != 0 and all(one is None for one in chosen)
        if whole and _has_lost_its_log(job, attempt):
            note(
                f"{name} has had output, but its log is not on the server any more: it was deleted "
                "with the job, or was not restored"
            )
            return 0
        source = f"attempt {attempt} of {name}" if attempt else name
        source = f"{task or role} of {source}" if task or role else source
        over = installation and job.finished
        note(f"{source} has {_nothing(since, expression, installation=installation, over=over)}")
    return max(printed, 0)


def _has_lost_its_log(job: Job, attempt: int | None) -> bool:
    """Whether a log is empty although the last attempt is known to have written something, as after
    a restore without the folder of the engine.
    """
    return job.finished and "output" in job.stages and attempt in (None, job.attempt)


def _nothing(
    since: str | None, expression: re.Pattern[bytes] | None, *, installation: bool, over: bool
) -> str:
    if expression is not None:
        return "no such line"
    if since is not None:
        return "no output since then"
    if not installation:
        return "no output of its code"
    return "no output" if over else "no output yet"


def _expression(pattern: str, *, ignore_case: bool) -> re.Pattern[bytes]:
    try:
        return re.compile(pattern.encode(), re.IGNORECASE if ignore_case else 0)
    except re.error as error:
        raise click.UsageError(
            f"--grep is {pattern!r}, which is no regular expression: {error}"
        ) from None
