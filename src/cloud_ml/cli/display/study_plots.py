"""Drawings of a study as SVG, or as one HTML file: no script, and nothing from elsewhere.

Names and values of parameters are a tenant's words: see ``drawing.text``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import combinations
from typing import Any

from cloud_ml.cli.display import study_charts
from cloud_ml.cli.display.drawing import HEIGHT, Axis, axis_of, dot, line, numbers, plot, svg, text
from cloud_ml.cli.display.study_values import (
    KINDS,
    DrawnStudy,
    ObjectiveValues,
    is_completed,
    parameter_names,
)
from cloud_ml.models.studies.study import planned_trials, shown_value, trial_label

_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'">
<title>{title}</title></head>
<body><h1>{title}</h1>
<p>{summary}</p>
{plots}
</body></html>
"""
_DONE, _OTHER, _BEST = "#2471a3", "#aaaaaa", "#c0392b"


def html_of(drawn: DrawnStudy, kinds: Collection[str] = KINDS) -> str:
    """The plots of these kinds as one file that needs no other."""
    study = drawn.study
    summary = f"{study.ended} of {planned_trials(study)} trials have ended. {_best_of(drawn)}"
    plots = "\n".join(svg(HEIGHT, [each]) for each in _plots(drawn, kinds))
    title = text(f"Study {study.name}")
    return _PAGE.format(title=title, summary=text(summary, longest=300), plots=plots)


def svg_of(drawn: DrawnStudy, kinds: Collection[str] = KINDS) -> str:
    """The plots of these kinds in one drawing, one below the other."""
    plots = [
        f'<g transform="translate(0 {index * HEIGHT})">{each}</g>'
        for index, each in enumerate(_plots(drawn, kinds))
    ]
    return svg(HEIGHT * len(plots), plots) + "\n"


def _best_of(drawn: DrawnStudy) -> str:
    best = drawn.study.best
    if drawn.study.front:
        return f"{drawn.study.front} trials are on the Pareto front."
    if best is None or best.value is None:
        return "No trial has a value yet."
    return f"The best is {shown_value(best)}, of {trial_label(best)}."


def _plots(drawn: DrawnStudy, kinds: Collection[str]) -> list[str]:
    """The plots, each in a group that has its kind as class."""
    return [f'<g class="{kind}">{each}</g>' for kind, each in _all_plots(drawn) if kind in kinds]


def _all_plots(drawn: DrawnStudy) -> Iterator[tuple[str, str]]:
    """The kind and the drawing of each plot."""
    names = parameter_names(drawn)
    for first, second in combinations(drawn.objectives, 2):
        yield "pareto", study_charts.pareto(drawn, first, second)
    for values in drawn.objectives:
        yield "history", _history(values)
    for found in drawn.importance:
        yield "importance", study_charts.importance(found)
    if drawn.curves is not None and drawn.curves.curves:
        yield "curves", study_charts.curves(drawn.curves, is_max=drawn.objectives[0].is_max)
    for values in drawn.objectives:
        if names and values.trials:
            yield "parallel", study_charts.parallel(drawn, values, names)
        for across, up in study_charts.pairs(names):
            yield "contour", study_charts.contour(drawn, values, across, up)
        for name in names:
            yield "slice", _slice(name, values, drawn.study.space.get(name))


def _history(values: ObjectiveValues) -> str:
    """The value of each trial, and a line of the best completed one so far."""
    across = numbers("trial", [trial.number for trial in values.trials])
    better = max if values.is_max else min
    best: float | None = None
    corners = []
    for trial in values.trials:
        if not is_completed(trial):
            continue
        at, value = across.place(trial.number), values.of(trial)
        if best is not None:
            corners.append((at, values.axis.place(best)))
        best = value if best is None else better(best, value)
        corners.append((at, values.axis.place(best)))
    dots = [_dot(values, number, across) for number in range(len(values.trials))]
    drawn = line(corners, _BEST) + "".join(dots)
    return plot(f"History of {values.name}", across, values.axis, drawn)


def _dot(values: ObjectiveValues, number: int, across: Axis, name: str = "") -> str:
    trial = values.trials[number]
    value = values.of(trial)
    at = across.place(trial.parameters[name] if name else trial.number)
    words = f"{trial_label(trial)}: {value:g} ({trial.state})"
    return dot(at, values.axis.place(value), words, _DONE if is_completed(trial) else _OTHER)


def _slice(name: str, values: ObjectiveValues, space: Any) -> str:
    """The value of each trial over one of its parameters."""
    having: Sequence[int] = [
        number for number, trial in enumerate(values.trials) if name in trial.parameters
    ]
    found = [values.trials[number].parameters[name] for number in having]
    axis = axis_of(name, found, space)
    dots = [_dot(values, number, axis, name) for number in having]
    return plot(f"{values.name} by {name}", axis, values.axis, "".join(dots))
