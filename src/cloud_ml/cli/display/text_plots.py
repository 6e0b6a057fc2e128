"""Plots for a terminal: points in a field of characters, and bars."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from cloud_ml.cli.display import study_charts
from cloud_ml.cli.display.drawing import Axis, numbers, objective_axis, shorten
from cloud_ml.cli.display.study_values import (
    DrawnStudy,
    ObjectiveValues,
    is_completed,
    parameter_names,
)
from cloud_ml.models.studies.readouts import StudyCurves, StudyImportance

_COLUMNS, _ROWS, _BAR = 64, 12, 40
_LABEL = 13
"""Characters of a label on the left, such as ``≥ 3.41803e+10``: cut numbers would be wrong ones."""
_TRIAL, _BEST, _OTHER = "●", "─", "·"
_SHADES, _RANKS = " ░▒▓█", "54321"
_ORDER = f"{_SHADES}{_BEST}{_OTHER}{_TRIAL}{_RANKS}"
_MOST_AXES, _LONGEST_WORD, _NEAREST = 8, 14, 300
Mark = tuple[float, float, str]
"""A place from 0 to 1 on both axes, and what stands there."""


def plots_of(drawn: DrawnStudy, kinds: Sequence[str]) -> Iterator[list[str]]:
    """The lines of each plot of these kinds; see ``study_values.KINDS``. What has nothing to show is
    left out.
    """
    for kind in kinds:
        for lines in _PLOTS[kind](drawn):
            if shown := list(lines):
                yield shown


def _fronts(drawn: DrawnStudy) -> Iterator[Iterator[str]]:
    if len(drawn.objectives) > 1:
        yield front_lines(drawn)


def _histories(drawn: DrawnStudy) -> Iterator[Iterator[str]]:
    yield from map(history_lines, drawn.objectives)


def _importances(drawn: DrawnStudy) -> Iterator[Iterator[str]]:
    yield from map(importance_lines, drawn.importance)


def _curves(drawn: DrawnStudy) -> Iterator[Iterator[str]]:
    if drawn.curves is not None:
        yield curves_lines(drawn.curves, is_max=drawn.objectives[0].is_max)


def _parallels(drawn: DrawnStudy) -> Iterator[Iterator[str]]:
    for values in drawn.objectives:
        yield parallel_lines(drawn, values, parameter_names(drawn))


def _contours(drawn: DrawnStudy) -> Iterator[Iterator[str]]:
    for values in drawn.objectives:
        for across, up in study_charts.pairs(parameter_names(drawn)):
            yield contour_lines(drawn, values, across, up)


def _slices(drawn: DrawnStudy) -> Iterator[Iterator[str]]:
    for values in drawn.objectives:
        for name in parameter_names(drawn):
            yield slice_lines(drawn, values, name)


_PLOTS = {
    "pareto": _fronts,
    "history": _histories,
    "importance": _importances,
    "curves": _curves,
    "parallel": _parallels,
    "contour": _contours,
    "slice": _slices,
}


def history_lines(values: ObjectiveValues) -> Iterator[str]:
    """The value of each trial, and a line of the best completed one so far."""
    trials = values.trials
    if not trials:
        return
    first, last = trials[0].number, trials[-1].number
    marks: list[Mark] = []
    best: float | None = None
    for trial in trials:
        at = (trial.number - first) / max(last - first, 1)
        value = values.axis.place(values.of(trial))
        if is_completed(trial):
            better = max if values.is_max else min
            best = value if best is None else better(best, value)
        if best is not None:
            marks.append((at, best, _BEST))
        marks.append((at, value, _TRIAL if is_completed(trial) else _OTHER))
    yield f"History of {values.name} ({_BEST} best so far, {_OTHER} not completed)"
    yield from field(marks, values.axis, f"trial {first} to {last}")


def front_lines(drawn: DrawnStudy) -> Iterator[str]:
    """Completed trials by the first two objectives, those on the Pareto front marked."""
    first, second = drawn.objectives[:2]
    front = {trial.number for trial in drawn.study.best_trials}
    marks = [
        (first.axis.place(first.of(one)), second.axis.place(second.of(one)),
         _TRIAL if one.number in front else _OTHER)
        for one in first.trials
        if is_completed(one)
    ]  # fmt: skip
    if not marks:
        return
    yield f"{second.name} by {first.name} ({_TRIAL} Pareto front)"
    low, *high = [words for _, words in first.axis.labels]
    yield from field(marks, second.axis, f"{first.name} {' to '.join([low, *high])}")


def slice_lines(drawn: DrawnStudy, values: ObjectiveValues, name: str) -> Iterator[str]:
    """The value of each trial over one of its parameters."""
    trials = [trial for trial in values.trials if name in trial.parameters]
    if not trials:
        return
    axis = study_charts.parameter_axis(drawn, trials, name)
    marks = [
        (axis.place(one.parameters[name]), values.axis.place(values.of(one)),
         _TRIAL if is_completed(one) else _OTHER)
        for one in trials
    ]  # fmt: skip
    yield f"{values.name} by {name} ({_OTHER} not completed)"
    yield from field(marks, values.axis, _range_of(axis))


def contour_lines(
    drawn: DrawnStudy, values: ObjectiveValues, across: str, up: str
) -> Iterator[str]:
    """The value over two parameters: dark is better. Between trials the near ones count most."""
    trials = study_charts.trials_with(values, across, up)
    if not trials:
        return
    first = study_charts.parameter_axis(drawn, trials, across)
    second = study_charts.parameter_axis(drawn, trials, up)
    places = [
        (first.place(one.parameters[across]), second.place(one.parameters[up])) for one in trials
    ]
    known = [
        (*place, values.goodness(one))
        for one, place in zip(trials[-_NEAREST:], places[-_NEAREST:], strict=True)
    ]
    marks: list[Mark] = [(*place, _TRIAL) for place in places]
    for column in range(_COLUMNS):
        for row in range(_ROWS):
            at, height = column / (_COLUMNS - 1), row / (_ROWS - 1)
            level = study_charts.level_at(known, at, height)
            marks.append((at, height, _SHADES[level * len(_SHADES) // study_charts.LEVELS]))
    yield f"{values.name} over {across} and {up} ({_SHADES[-1]} best, {_TRIAL} trials)"
    yield from field(marks, second, _range_of(first))


def parallel_lines(
    drawn: DrawnStudy, values: ObjectiveValues, names: Sequence[str]
) -> Iterator[str]:
    """The parameters and the value of the best five trials: the best is 1."""
    trials = sorted(study_charts.trials_with(values), key=values.goodness)[-len(_RANKS) :]
    if not trials or not names:
        return
    axes = [study_charts.parameter_axis(drawn, values.trials, name) for name in names[:_MOST_AXES]]
    posts = [(index + 0.5) / (len(axes) + 1) for index in range(len(axes) + 1)]
    marks: list[Mark] = []
    for trial, rank in zip(trials, _RANKS[-len(trials) :], strict=True):
        corners = [
            (post, axis.place(trial.parameters[axis.name]))
            for post, axis in zip(posts, axes, strict=False)
            if axis.name in trial.parameters
        ]
        corners.append((posts[-1], values.axis.place(values.of(trial))))
        marks += [(*corner, rank) for corner in corners]
        marks += _lines_between(corners)
    all_axes = [*axes, values.axis]
    yield f"Parameters of the best trials by {values.name} (1 is the best)"
    yield _below(posts, [_end_of(axis, 1.0) for axis in all_axes])
    yield from field(marks, Axis(name="", place=float, labels=[]), "")
    yield _below(posts, [_end_of(axis, 0.0) for axis in all_axes])
    yield _below(posts, [axis.name for axis in all_axes])


def curves_lines(found: StudyCurves, *, is_max: bool) -> Iterator[str]:
    """The values that trials reported, over their steps."""
    pieces = [(curve, study_charts.numbers_of(curve)) for curve in found.curves]
    steps = [step for curve, _ in pieces for step in curve.steps]
    values = [value for _, listed in pieces for value in listed if value is not None]
    if not values:
        return
    across, up = numbers("step", steps), objective_axis(found.objective, values, is_max=is_max)
    marks = [
        (across.place(step), up.place(value), _TRIAL if curve.state == "Completed" else _OTHER)
        for curve, listed in pieces
        for step, value in zip(curve.steps, listed, strict=True)
        if value is not None
    ]
    yield f"Intermediate values of {found.objective} ({_OTHER} of trials that are not completed)"
    yield from field(marks, up, _range_of(across))


def _lines_between(corners: Sequence[tuple[float, float]]) -> list[Mark]:
    """Points on the lines from each place to the next."""
    marks = []
    for (left, start), (right, end) in pairwise(corners):
        steps = round((right - left) * (_COLUMNS - 1))
        for step in range(1, steps):
            share = step / steps
            marks.append((left + share * (right - left), start + share * (end - start), _OTHER))
    return marks


def _range_of(axis: Axis) -> str:
    """What stands below a field: the name of an axis and its ends, or its categories."""
    words = [shorten(each, 12) for _, each in axis.labels]
    between = " to " if [at for at, _ in axis.labels] == [0.0, 1.0] else ", "
    return f"{shorten(axis.name, 24)}: {between.join(words)}"[-_COLUMNS:]


def _end_of(axis: Axis, end: float) -> str:
    """The label nearest to an end of an axis."""
    near = [words for at, words in axis.labels if abs(at - end) <= 0.5]
    return near[-1 if end else 0] if near else ""


def _below(posts: Sequence[float], words: Sequence[str]) -> str:
    """Words at the places of posts, each cut to its share of the width."""
    most = min(_COLUMNS // len(posts) - 1, _LONGEST_WORD)
    line = ""
    for post, each in zip(posts, words, strict=True):
        middle = _LABEL + 2 + round(post * (_COLUMNS - 1))
        short = shorten(each, most)
        line = f"{line:<{max(middle - len(short) // 2, len(line) + 1)}}{short}"
    return line


def field(marks: Sequence[Mark], up: Axis, below: str) -> Iterator[str]:
    """Marks in a field; what counts stands over the rest."""
    cells = [[" "] * _COLUMNS for _ in range(_ROWS)]
    for across, at, mark in sorted(marks, key=lambda one: _ORDER.index(one[2])):
        column, row = round(across * (_COLUMNS - 1)), round((1 - at) * (_ROWS - 1))
        cells[row][column] = mark
    labels = {round((1 - at) * (_ROWS - 1)): shorten(words, _LABEL) for at, words in up.labels}
    for row, line in enumerate(cells):
        yield f"{labels.get(row, ''):>{_LABEL}} │{''.join(line).rstrip()}"
    yield " " * (_LABEL + 1) + "└" + "─" * _COLUMNS
    if below:
        yield f"{below:>{_LABEL + 2 + _COLUMNS}}"


def importance_lines(found: StudyImportance) -> Iterator[str]:
    """A bar for the share of each parameter."""
    yield f"Importance for {found.objective} (fANOVA, from {found.trials} trials)"
    for one in found.parameters:
        bar = bar_of(one.fanova, _BAR)
        yield f"{one.name[:20]:>20} {bar:<{_BAR}} {one.fanova:.2f}"


def bar_of(share: float, width: int) -> str:
    """A share, from 0 to 1, as a bar."""
    return "█" * round(min(max(share, 0.0), 1.0) * width)
