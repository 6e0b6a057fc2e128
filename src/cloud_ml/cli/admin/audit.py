"""``cloudml admin audit``."""

from __future__ import annotations

from datetime import UTC
from itertools import islice

import click

from cloud_ml.cli.display.output import echo_as, echo_table, local_time, note, output_option
from cloud_ml.cli.jobs.times import moment
from cloud_ml.cli.options.numbers import WholeNumber
from cloud_ml.cli.session import Session, pass_session


@click.command()
@click.option("--org", metavar="ORG", help="Another organisation, for admins; -1 means all.")
@click.option("--user", metavar="NAME", help="Only what this user did.")
@click.option(
    "--key", metavar="KEY", help="Only what was done with this access key, or the token of this id."
)
@click.option(
    "--operation",
    metavar="TEXT",
    help="Only operations that begin so, such as jobs. or admin.create.",
)
@click.option("--target", metavar="TEXT", help="Only what was done to names that begin so.")
@click.option(
    "--outcome",
    metavar="WORD",
    help="Only this outcome: done, or an error's code such as forbidden.",
)
@click.option(
    "--since",
    metavar="TIME",
    help="From this time on: 1h or 2d (ago), 2026-01-31, '2026-01-31 12:00'.",
)
@click.option("--until", metavar="TIME", help="Before this time, likewise.")
@click.option(
    "--limit",
    type=WholeNumber(0),
    default=50,
    show_default=True,
    help="Maximum number; 0 means all.",
)
@output_option("wide")
@pass_session
def audit(
    session: Session,
    *,
    org: str | None,
    user: str | None,
    key: str | None,
    operation: str | None,
    target: str | None,
    outcome: str | None,
    since: str | None,
    until: str | None,
    limit: int,
    output: str | None,
) -> None:
    """Show who changed what, when and from where, newest first; also what was refused.

    CHANGE says from what to what, or what was asked for. Secrets and variables of jobs are never shown there.
    """
    start, end = moment("--since", since), moment("--until", until)
    found = session.client.admin.audit(
        org=org,
        user=user,
        key=key,
        operation=operation,
        target=target,
        outcome=outcome,
        since=start and start.astimezone(UTC),
        until=end and end.astimezone(UTC),
        limit=limit + 1 if limit else None,
    )
    shown = list(islice(found, limit or None))
    if not echo_as(output, shown, (str(line.id) for line in shown)):
        wide = output == "wide"
        rows = [
            (
                local_time(line.at),
                f"{line.user} of {line.org}",
                line.operation,
                line.target,
                line.outcome,
                line.address,
                line.change,
                *((line.key, line.request) if wide else ()),
            )
            for line in shown
        ]
        header = (
            "TIME",
            "WHO",
            "OPERATION",
            "TARGET",
            "OUTCOME",
            "FROM",
            "CHANGE",
            *(("KEY", "REQUEST") if wide else ()),
        )
        echo_table(header, rows)
    conditions = (user, key, operation, target, outcome, since, until)
    if not shown and any(conditions):
        note("No entry meets these conditions.")
    if next(found, None) is not None:
        note(f"There are more than {limit}; --limit 0 shows them all.")
