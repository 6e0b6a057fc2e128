"""``cloudml hp importance``, ``curves`` and ``plot``: what can be read out of the trials of a study."""

from __future__ import annotations

from pathlib import Path

import click

from cloud_ml.cli.completing import files, names_of
from cloud_ml.cli.display.csv_tables import echo_csv
from cloud_ml.cli.display.output import echo, echo_as, echo_table, note, output_option
from cloud_ml.cli.display.study_values import DrawnStudy, drawn_study
from cloud_ml.cli.display.text_plots import bar_of, history_lines, importance_lines
from cloud_ml.cli.session import Session, pass_session
from cloud_ml.errors import Conflict, Unavailable
from cloud_ml.models.study import STUDIES, Study
from cloud_ml.models.study_readouts import ParameterImportance, StudyImportance

_OBJECTIVE = click.option(
    "--objective", metavar="METRIC", help="Of this objective; of the first by default."
)
_MEASURES = (
    "parameter", "fanova", "fanova_low", "fanova_high", "permutation", "permutation_low",
    "permutation_high",
)  # fmt: skip
_BAR = 20


@click.command("importance", help="Show how much each parameter of a study matters.")
@click.argument("name", shell_complete=names_of(STUDIES))
@_OBJECTIVE
@output_option("csv")
@pass_session
def importance(session: Session, name: str, *, objective: str | None, output: str | None) -> None:
    """Print the importance of the parameters, the most important first."""
    found = session.client.studies.importance(name, objective=objective)
    if output == "csv":
        echo_csv(_MEASURES, [tuple(vars(one).values()) for one in found.parameters])
        return
    if echo_as(output, found, (one.name for one in found.parameters)):
        return
    rows = [(one.name, *_measures(one), bar_of(one.fanova, _BAR)) for one in found.parameters]
    echo_table(("PARAMETER", "FANOVA", "90 %", "PERMUTATION", "90 %", ""), rows)
    note(summary_of(found))


def summary_of(found: StudyImportance) -> str:
    """From what the importance was learned, and how well."""
    return (
        f"From {found.trials} trials. Trees predict {found.explained:.0%} of the variance of "
        f"{found.objective}; interactions of parameters have {found.interactions:.0%} of it."
    )


def _measures(one: ParameterImportance) -> tuple[str, str, str, str]:
    return (
        f"{one.fanova:.2f}",
        f"{one.fanova_low:.2f}–{one.fanova_high:.2f}",
        f"{one.permutation:.2f}",
        f"{one.permutation_low:.2f}–{one.permutation_high:.2f}",
    )


@click.command("curves", help="Show the values that trials reported while they ran.")
@click.argument("name", shell_complete=names_of(STUDIES))
@_OBJECTIVE
@click.option("--points", type=int, default=100, metavar="N", help="At most so many of a trial.")
@output_option("csv")
@pass_session
def curves(
    session: Session, name: str, *, objective: str | None, points: int, output: str | None
) -> None:
    """Print the values of each trial; as CSV one value a line."""
    found = session.client.studies.curves(name, objective=objective, points=points)
    if output == "csv":
        echo_csv(
            ("number", "job", "step", found.objective),
            [
                (curve.number, curve.job, step, value)
                for curve in found.curves
                for step, value in zip(curve.steps, curve.values, strict=True)
            ],
        )
    elif not echo_as(output, found, (curve.job for curve in found.curves)):
        rows = [
            (curve.job, curve.state, str(curve.steps[-1]), _text(curve.values[0]),
             _text(curve.values[-1]), str(len(curve.steps)))
            for curve in found.curves
        ]  # fmt: skip
        echo_table(("JOB", "STATE", "LAST STEP", "FIRST", "LAST", "POINTS"), rows, painted=1)
        note(f"All values: cloudml hp curves {name} -o csv")


def _text(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"


@click.command(
    "plot", help="Draw the trials of a study in the terminal, or into an HTML or SVG file."
)
@click.argument("name", shell_complete=names_of(STUDIES))
@click.option(
    "-o",
    "--output",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    shell_complete=files,
    metavar="FILE",
    help="File to write, such as rates.html or rates.svg. It is replaced if it exists.",
)
@pass_session
def plot(session: Session, name: str, path: Path | None) -> None:
    """Draw the history and the importance; into a file also slices, contours, parallel coordinates
    and the values that trials reported while they ran.
    """
    from cloud_ml.cli.display.study_plots import html_of, svg_of

    draw = {".html": html_of, ".svg": svg_of}.get(path.suffix.lower() if path else ".svg")
    if draw is None:
        raise click.UsageError(f"-o is {str(path)!r}; allowed is a name that ends in .html or .svg")
    study = session.client.studies.describe(name)
    importance_found = _importance_of(session, study)
    if path is None:
        _echo_plots(drawn_study(study, importance_found))
        return
    curves_found = session.client.studies.curves(name)
    text = draw(drawn_study(study, importance_found, curves_found))
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror}") from error
    echo(f"{path} has the plots of {name}")


def _importance_of(session: Session, study: Study) -> list[StudyImportance]:
    """The importance, where there is one: of few trials, or without numpy, the rest is drawn."""
    try:
        return [session.client.studies.importance(study.name)]
    except (Conflict, Unavailable) as error:
        note(f"Without importance: {error.message}")
        return []


def _echo_plots(drawn: DrawnStudy) -> None:
    for values in drawn.objectives:
        if not values.trials:
            echo(f"No trial has a value of {values.name} yet.")
        for line in history_lines(values):
            echo(line)
    for found in drawn.importance:
        echo("")
        for line in importance_lines(found):
            echo(line)
    note(f"All plots: cloudml hp plot {drawn.study.name} -o {drawn.study.name}.html")
