"""``cloudml jobs reproduce``: run a job again, and say whether it gave the same."""

from __future__ import annotations

import click

from cloud_ml.cli.completion.candidates import job_names
from cloud_ml.cli.display.output import echo, echo_as, note, output_option
from cloud_ml.cli.display.progress import spinner
from cloud_ml.cli.jobs.name_suggestions import near_names
from cloud_ml.cli.options.numbers import Number
from cloud_ml.cli.session import Session, pass_session

_DIFFERS = 1


@click.command()
@click.argument("name", shell_complete=job_names)
@click.option(
    "--tolerance",
    type=Number(0),
    default=1e-6,
    show_default=True,
    help="The largest difference of a metric that counts as none; relative for values beyond 1.",
)
@click.option(
    "-m", "--metric", "metrics", multiple=True, metavar="NAME", help="Compare only these metrics."
)
@output_option()
@pass_session
def reproduce(
    session: Session,
    name: str,
    *,
    tolerance: float,
    metrics: tuple[str, ...],
    output: str | None,
) -> int:
    """Run job NAME again from its record and say whether it gives the same.

    \b
    cloudml jobs reproduce linear
    cloudml jobs reproduce linear --tolerance 1e-3 --metric loss

    The answer is "identical", "within" the tolerance, or "differs because" of a reason. The job runs
    with the same code, arguments, packages and seed, and writes beside the folders of the first one.
    If it differs without a known reason, it runs once more. Exit code 1 means that it differs, or
    that neither run has metrics or files to compare.
    """
    with near_names(session), spinner(f"Running {name} again") as say:
        found = session.client.reproduce_train_job(
            name, tolerance=tolerance, metrics=metrics, tell=say
        )
    if not echo_as(output, found, found.again):
        echo(f"{found.job} {found.said}" if found.verdict == "differs" else found.said)
        for reason in found.because[1:]:
            note(f"Also: {reason}")
        for file in found.outputs:
            note(f"Another content: {file}")
        note(f"See for yourself: cloudml jobs compare {found.job} {found.again}")
    return 0 if found.reproduced else _DIFFERS
