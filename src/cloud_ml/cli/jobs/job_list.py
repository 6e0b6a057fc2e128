"""``cloudml jobs list``."""

from __future__ import annotations

from itertools import islice

import click

from cloud_ml.cli.completion.candidates import framework_names, job_names, state_names
from cloud_ml.cli.display.output import echo_as, echo_table, note, output_option
from cloud_ml.cli.jobs.times import moment
from cloud_ml.cli.options.base import Option
from cloud_ml.cli.options.numbers import WholeNumber
from cloud_ml.cli.options.other_org import other_org_option
from cloud_ml.cli.session import Session, pass_session


@click.command("list")
@output_option("wide")
@click.option(
    "-s",
    "--state",
    cls=Option,
    aliases=("--status", "--states", "--phase"),
    metavar="STATE,…",
    shell_complete=state_names,
    help="Only in these states, such as running,failed. A cancelled job is stopped.",
)
@click.option(
    "-n",
    "--name",
    metavar="NAME",
    shell_complete=job_names,
    help="Only with this name; 'exp*' matches a beginning.",
)
@click.option(
    "-F",
    "--framework",
    metavar="NAME",
    shell_complete=framework_names,
    help="Only of this framework.",
)
@click.option("-u", "--user", metavar="USER", help="Only of this user.")
@click.option(
    "-l",
    "--label",
    "labels",
    cls=Option,
    aliases=("--selector",),
    multiple=True,
    metavar="KEY=VALUE",
    help="Only with this label. Repeat for several.",
)
@click.option(
    "--since",
    metavar="TIME",
    help="Submitted after this time: 2h (ago), 2026-01-31, 2026-01-31T12:00.",
)
@click.option("--until", metavar="TIME", help="Submitted before this time.")
@click.option(
    "--columns",
    cls=Option,
    aliases=("--metrics", "--metric"),
    metavar="METRIC,…",
    help="Show the last values of these metrics, too, such as loss,accuracy; progress shows how "
    "far jobs that run are, and what time is left.",
)
@click.option(
    "--limit",
    cls=Option,
    aliases=("--last",),
    type=WholeNumber(0),
    default=200,
    show_default=True,
    help="Maximum number; 0 means all.",
)
@click.option("-a", "--all", "everything", is_flag=True, help="The same as --limit 0.")
@other_org_option
@pass_session
def list_jobs(
    session: Session,
    *,
    output: str | None,
    state: str | None,
    name: str | None,
    framework: str | None,
    user: str | None,
    labels: tuple[str, ...],
    since: str | None,
    until: str | None,
    columns: str | None,
    limit: int,
    everything: bool,
) -> None:
    """List jobs, newest first. A job must meet all conditions.

    A job's reason says why it is in its state. For code that failed, it is the type of the
    exception. -o wide adds the exit code and the arguments.
    """
    from cloud_ml.cli.jobs.table import PROGRESS, header, progress_of, rows

    limit = 0 if everything else limit
    extra = [one.strip() for one in (columns or "").split(",") if one.strip()]
    found = session.client.list_train_jobs(
        state=state,
        name=name,
        framework=framework,
        user=user,
        labels=_read_labels(labels),
        created_after=moment("--since", since),
        created_before=moment("--until", until),
        limit=limit + 1 if limit else None,
        details=output != "name",
        metrics=[one for one in extra if one != PROGRESS],
    )
    shown = list(islice(found, limit or None))
    if not echo_as(output, shown, (job.name for job in shown)):
        from datetime import UTC, datetime

        wide = output == "wide"
        progress = progress_of(session.client, shown) if PROGRESS in extra else {}
        lines = rows(shown, datetime.now(UTC), wide=wide, columns=extra, progress=progress)
        echo_table(header(wide=wide, columns=extra), lines, painted=1)
    if not shown and any((state, name, framework, user, labels, since, until)):
        also = f" To limit the list: --limit {name}." if name and name.isdigit() else ""
        note(f"No job meets these conditions.{also}")
    if next(found, None) is not None:
        note(f"There are more than {limit}; --limit 0 shows them all.")


def _read_labels(pairs: tuple[str, ...]) -> dict[str, str]:
    if not pairs:  # the usual list is quick: what reads conditions is imported for them only
        return {}
    from cloud_ml.cli.jobs.submit_arguments import read_pairs

    return read_pairs("--label", pairs)
