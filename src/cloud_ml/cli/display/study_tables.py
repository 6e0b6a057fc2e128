"""Tables of the trials of a study."""

from __future__ import annotations

from collections.abc import Sequence

import click

from cloud_ml.cli.display.output import echo_table, note
from cloud_ml.models.studies.readouts import TrialCurve
from cloud_ml.models.studies.study import (
    Study,
    Trial,
    objectives_of,
    shown_parameters,
    shown_value,
    values_of,
)

_BEHIND_VALUES = ("STEP", "PARAMETERS", "MESSAGE")


def first_column(study: Study) -> str:
    """The head of the column that names a trial: trials of a loop of users are no jobs."""
    return "TRIAL" if study.local else "JOB"


def first_cell(trial: Trial | TrialCurve) -> str:
    """The name of a trial in that column."""
    return trial.job or str(trial.number)


def sort_trials(study: Study, by: str) -> Sequence[Trial]:
    """By number as they come, or the best first. Those that cannot be the best come last, such as
    failed ones, and before them those without a value. Trials that are repeated come first, by
    their means, each with its repeats behind it.
    """
    if by == "number":
        return study.trials
    metrics = [metric for metric, _ in objectives_of(study)]
    if by != "value" and by not in metrics:
        raise click.UsageError(f"--sort is {by!r}; allowed: number, value, {', '.join(metrics)}")
    at = 0 if by == "value" else metrics.index(by)
    sign = -1 if objectives_of(study)[at][1] else 1

    by_number = {trial.number: trial for trial in study.trials}

    def key(trial: Trial) -> tuple[bool, bool, bool, float, int, int]:
        first = trial if trial.repeat_of is None else by_number[trial.repeat_of]
        values = values_of(first)
        value = values[at] if at < len(values) else None
        value = value if first.mean is None else first.mean
        counts = first.state in ("Completed", "Running")
        return (
            not counts,
            value is None,
            not first.runs,
            sign * (value or 0),
            first.number,
            trial.number,
        )

    return sorted(study.trials, key=key)


def echo_trials_csv(study: Study, found: Sequence[Trial]) -> None:
    """Print the trials as CSV, each parameter in a column of its own."""
    from cloud_ml.cli.display.csv_tables import columns_of, echo_csv

    columns = columns_of("params", (trial.parameters for trial in found))
    metrics = [f"values.{metric}" for metric, _ in objectives_of(study)]
    several = len(metrics) > 1
    header = ("number", "job", "state", *(metrics if several else ["value"]), "step")
    front = {trial.number for trial in study.best_trials}
    further = _further_columns(study)
    echo_csv(
        (*header, *columns, *(["pareto"] if several else []), *further, "message"),
        (
            (
                trial.number,
                trial.job,
                trial.state,
                *_pad(values_of(trial), len(metrics)),
                trial.step,
                *(trial.parameters.get(key) for key in columns.values()),
                *([trial.number in front] if several else []),
                *(getattr(trial, name) for name in further),
                trial.message,
            )
            for trial in found
        ),
    )


def echo_trials(study: Study, found: Sequence[Trial]) -> None:
    """Print the trials as a table, and behind all of them those that are queued."""
    metrics = [metric for metric, _ in objectives_of(study)]
    front = {trial.number for trial in study.best_trials}
    rows = [
        (
            first_cell(trial) + (" *" if trial.number in front else ""),
            trial.state,
            *("" if value is None else f"{value:g}"
              for value in _pad(values_of(trial), len(metrics))),
            *([_mean_of(trial)] if study.repeats else []),
            "" if trial.step is None else str(trial.step),
            shown_parameters(trial.parameters),
            trial.message or _origin_of(trial),
        )
        for trial in found
    ]  # fmt: skip
    empty = [""] * (len(metrics) + bool(study.repeats))
    if len(found) == len(study.trials):  # they come after all that have begun
        rows += [
            ("", "Queued", *empty, "", shown_parameters(parameters), "")
            for parameters in study.queued
        ]
    means = ["MEAN"] if study.repeats else []
    header = (
        *(first_column(study), "STATE"),
        *(metric.upper() for metric in metrics),
        *means,
        *_BEHIND_VALUES,
    )
    echo_table(header, rows, painted=1)
    if front:
        note("* is on the Pareto front.")


def _further_columns(study: Study) -> Sequence[str]:
    """Fields of trials that only studies of this kind have."""
    if study.repeats:
        return ("repeat_of", "runs", "mean", "standard_error")
    return ("member", "parent") if study.algorithm_options else ()


def _pad(values: Sequence[float | None], count: int) -> Sequence[float | None]:
    """One value for each objective; a trial that runs may have the first only."""
    return [*values, *[None] * (count - len(values))]


def _mean_of(trial: Trial) -> str:
    runs = "1 run" if trial.runs == 1 else f"{trial.runs} runs"
    return "" if trial.mean is None else f"{shown_value(trial)} ({runs})"


def _origin_of(trial: Trial) -> str:
    """What a trial repeats, or goes on from."""
    if trial.repeat_of is not None:
        return f"repeat of trial {trial.repeat_of}"
    if trial.member is None:
        return ""
    begins = "begins" if trial.parent is None else f"goes on from trial {trial.parent}"
    return f"member {trial.member} {begins}"
