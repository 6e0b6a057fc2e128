"""``cloudml hp best``, ``importance``, ``curves`` and ``plot``: what can be read out of the trials of a study."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from cloud_ml.cli.completion.candidates import files, names_of
from cloud_ml.cli.display.csv_tables import columns_of, echo_csv
from cloud_ml.cli.display.output import echo, echo_as, echo_table, note, output_option
from cloud_ml.cli.display.study_tables import first_cell, first_column
from cloud_ml.cli.display.study_values import KINDS, DrawnStudy, drawn_study
from cloud_ml.cli.display.text_plots import bar_of, plots_of
from cloud_ml.cli.options.numbers import WholeNumber
from cloud_ml.cli.session import Session, pass_session
from cloud_ml.errors import Conflict, Unavailable
from cloud_ml.models.studies.pareto import hypervolume
from cloud_ml.models.studies.readouts import ParameterImportance, StudyImportance
from cloud_ml.models.studies.study import (
    STUDIES,
    Study,
    Trial,
    objectives_of,
    shown_parameters,
    shown_value,
    values_of,
)

_OBJECTIVE = click.option(
    "--objective", metavar="METRIC", help="Of this objective; of the first by default."
)
_MEASURES = (
    "parameter", "fanova", "fanova_low", "fanova_high", "permutation", "permutation_low",
    "permutation_high",
)  # fmt: skip
_BAR = 20
_SHOWN = ("pareto", "history", "importance")
"""Plots that a terminal shows if none is asked for."""


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


def _texts_of(trial: Trial) -> list[str]:
    return [f"{value:g}" for value in values_of(trial)]


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


@click.command("best", help="Show the best trial of a study, or its Pareto front.")
@click.argument("name", shell_complete=names_of(STUDIES))
@click.option(
    "--reference",
    metavar="VALUE,VALUE",
    help="Compute the hypervolume up to these values, one of each objective; by default up to the "
    "worst of completed trials.",
)
@click.option(
    "--register",
    "model",
    metavar="MODEL",
    help="Register the outputs of the best trial as the next version of this model, as MLflow's "
    "client sees it.",
)
@click.option(
    "--trial", "number", type=WholeNumber(), metavar="N", help="Register this trial instead."
)
@output_option("csv")
@pass_session
def best(
    session: Session,
    /,
    *,
    name: str,
    reference: str | None,
    model: str | None,
    number: int | None,
    output: str | None,
) -> None:
    """Print the best trial. With several objectives, those that no other one dominates."""
    if number is not None and model is None:
        raise click.UsageError("--trial goes with --register MODEL")
    if model is not None:
        _register(session, name, model, number, output)
        return
    study = session.client.studies.describe(name)
    found = study.best_trials or ([] if study.best is None else [study.best])
    volume = study.hypervolume if reference is None else _volume(study, found, reference)
    if output == "csv":
        _echo_best_as_csv(study, found)
        return
    if echo_as(output, found, map(first_cell, found)):
        return
    if not found:
        note(f"No trial of {name} has completed with a value yet.")
        return
    _echo_best_as_table(study, found)
    if len(objectives_of(study)) > 1:
        note(f"Hypervolume: {'not computed' if volume is None else f'{volume:g}'}")


def _register(
    session: Session, study: str, model: str, number: int | None, output: str | None
) -> None:
    made = session.client.studies.register(study, model, number=number)
    if not echo_as(output, made, f"{made.model} {made.version}"):
        echo(f"{made.model} has version {made.version}: {made.source} of {made.job}")


def _echo_best_as_csv(study: Study, trials: Sequence[Trial]) -> None:
    metrics = [f"values.{metric}" for metric, _ in objectives_of(study)]
    parameters = columns_of("params", (trial.parameters for trial in trials))
    further = ("runs", "mean", "standard_error") if study.repeats else ()

    def row(trial: Trial) -> tuple[object, ...]:
        settings = [trial.parameters.get(key) for key in parameters.values()]
        of_repeats = [getattr(trial, name) for name in further]
        return (trial.number, trial.job, *values_of(trial), *settings, *of_repeats)

    echo_csv(("number", "job", *metrics, *parameters, *further), [row(trial) for trial in trials])


def _echo_best_as_table(study: Study, trials: Sequence[Trial]) -> None:
    metrics = [metric.upper() for metric, _ in objectives_of(study)]

    def row(trial: Trial) -> tuple[str, ...]:
        values = [shown_value(trial)] if len(metrics) == 1 else _texts_of(trial)
        return (first_cell(trial), *values, shown_parameters(trial.parameters))

    echo_table((first_column(study), *metrics, "PARAMETERS"), [row(trial) for trial in trials])


def _volume(study: Study, front: Sequence[Trial], text: str) -> float | None:
    """The hypervolume of the front up to a point that a user names."""
    objectives = objectives_of(study)
    try:
        point = [float(word) for word in text.split(",")]
    except ValueError:
        point = []
    if len(point) != len(objectives) or len(objectives) < 2:
        named = ",".join(metric for metric, _ in objectives)
        raise click.UsageError(f"--reference is {text!r}; allowed are values of {named}")
    signs = [-1.0 if is_max else 1.0 for _, is_max in objectives]
    costs = [
        tuple(sign * (value or 0.0) for sign, value in zip(signs, values_of(trial), strict=True))
        for trial in front
    ]
    return hypervolume(costs, tuple(s * v for s, v in zip(signs, point, strict=True)))


@click.command("curves", help="Show the values that trials reported while they ran.")
@click.argument("name", shell_complete=names_of(STUDIES))
@_OBJECTIVE
@click.option(
    "--points", type=WholeNumber(), default=100, metavar="N", help="At most so many of a trial."
)
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
    elif not echo_as(output, found, map(first_cell, found.curves)):
        rows = [
            (first_cell(curve), curve.state, str(curve.steps[-1]), _text(curve.values[0]),
             _text(curve.values[-1]), str(len(curve.steps)))
            for curve in found.curves
        ]  # fmt: skip
        first = "JOB" if any(curve.job for curve in found.curves) else "TRIAL"
        echo_table((first, "STATE", "LAST STEP", "FIRST", "LAST", "POINTS"), rows, painted=1)
        note(f"All values: cloudml hp curves {name} -o csv")


def _text(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"


@click.command(
    "plot", help="Draw the trials of a study in the terminal, or into an HTML, SVG or PNG file."
)
@click.argument("name", shell_complete=names_of(STUDIES))
@click.option(
    "-o",
    "--output",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    shell_complete=files,
    metavar="FILE",
    help="File to write, such as rates.html, rates.svg or rates.png. It is replaced if it exists.",
)
@click.option(
    "-k",
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(KINDS),
    help="A kind of plot, again for more. Without it, the terminal shows pareto, history and "
    "importance, and a file has all.",
)
@pass_session
def plot(session: Session, name: str, path: Path | None, kinds: tuple[str, ...]) -> None:
    """Draw the history and the importance, or other plots that are asked for; into a file all."""
    from cloud_ml.cli.display.study_plots import html_of, svg_of

    kind = path.suffix.lower() if path else ".svg"
    if kind not in (".html", ".svg", ".png"):
        allowed = "a name that ends in .html, .svg or .png"
        raise click.UsageError(f"-o is {str(path)!r}; allowed is {allowed}")
    chosen: Sequence[str] = kinds or (KINDS if path else _SHOWN)
    study = session.client.studies.describe(name)
    # Parameters stand in the order of their importance.
    importance_found = _importance_of(session, study)
    curves_found = session.client.studies.curves(name) if "curves" in chosen else None
    drawn = drawn_study(study, importance_found, curves_found)
    if len(objectives_of(study)) == 1:
        if "pareto" in kinds:
            note(f"--kind pareto needs two objectives; {name} has one: {study.objective}")
        chosen = [each for each in chosen if each != "pareto"]
    if path is None:
        _echo_plots(drawn, chosen)
        return
    content = (html_of(drawn, chosen) if kind == ".html" else svg_of(drawn, chosen)).encode()
    if kind == ".png":
        from cloud_ml.cli.display.study_images import png_of

        content = png_of(content.decode())
    try:
        path.write_bytes(content)
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror}") from error
    echo(f"{path} has the plots of {name}")


def _importance_of(session: Session, study: Study) -> list[StudyImportance]:
    """The importance, where there is one: of few trials, or without numpy, the rest is drawn."""
    try:
        return [
            session.client.studies.importance(study.name, objective=metric)
            for metric, _ in objectives_of(study)
        ]
    except (Conflict, Unavailable) as error:
        note(f"Without importance: {error.message}")
        return []


def _echo_plots(drawn: DrawnStudy, kinds: Sequence[str]) -> None:
    for values in drawn.objectives:
        if not values.trials:
            echo(f"No trial has a value of {values.name} yet.")
    plots = list(plots_of(drawn, kinds))
    for number, lines in enumerate(plots):
        if number:
            echo("")
        for line in lines:
            echo(line)
    if kinds and not plots:
        echo(f"There is nothing to draw for --kind {' and '.join(kinds)} yet.")
    possible = KINDS if len(drawn.objectives) > 1 else [one for one in KINDS if one != "pareto"]
    others = ", ".join(kind for kind in possible if kind not in kinds)
    hint = f"--kind also takes {others}. " if others else ""
    note(f"{hint}All in one file: cloudml hp plot {drawn.study.name} -o {drawn.study.name}.html")
