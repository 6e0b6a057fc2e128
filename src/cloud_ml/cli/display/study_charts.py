"""Plots of many trials at once: importance, curves, parallel coordinates and contours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Any

from cloud_ml.cli.display.drawing import (
    Axis,
    axis_of,
    dot,
    is_number,
    label,
    line,
    numbers,
    objective_axis,
    plot,
    point,
    shade,
    shorten,
)
from cloud_ml.cli.display.study_values import DrawnStudy, ObjectiveValues, is_completed
from cloud_ml.models.studies.readouts import StudyCurves, StudyImportance, TrialCurve
from cloud_ml.models.studies.study import Trial, trial_label

_MOST_BARS, _MOST_AXES, _MOST_LINES, _MOST_PAIRED = 10, 10, 500, 3
LEVELS = 10
_COLUMNS, _ROWS, _LEAST_DISTANCE, _NEAREST = 32, 20, 1e-4, 300
_COLOURS = {"Completed": "#2471a3", "Running": "#1e8449", "EarlyStopped": "#b9770e"}
_OTHER = "#aaaaaa"


def importance(found: StudyImportance) -> str:
    """A bar for each measure of each parameter, with the range of most trees."""
    shown = found.parameters[:_MOST_BARS]
    largest = max((one.permutation_high for one in shown), default=0.0)
    across = numbers("share of the variance", [0.0, max(largest, 1.0)])
    up = Axis(name="", place=lambda value: value, labels=[])
    drawn = []
    for index, one in enumerate(shown):
        top = 1 - (index + 0.15) / len(shown)
        half = 0.35 / len(shown)
        measures = (
            (one.fanova, one.fanova_low, one.fanova_high, "#2471a3", "fANOVA"),
            (one.permutation, one.permutation_low, one.permutation_high, "#b9770e", "permutation"),
        )
        for row, (mean, low, high, colour, what) in enumerate(measures):
            words = f"{one.name}: {what} {mean:.2f}, {low:.2f} to {high:.2f}"
            ends = [min(max(across.place(value), 0.0), 1.0) for value in (mean, low, high)]
            drawn.append(_bar(ends, top - row * half, half, colour, words))
        x, y = point(0, top - half)
        drawn.append(label(x - 8, y + 4, shorten(one.name, 13), "end"))
    title = f"Importance for {found.objective}: fANOVA (blue), permutation (brown)"
    return plot(title, across, up, "".join(drawn))


def _bar(ends: Sequence[float], top: float, height: float, colour: str, words: str) -> str:
    mean, low, high = ends
    left, y = point(0, top)
    right, below = point(mean, top - 0.8 * height)
    middle = top - 0.4 * height
    bar = (
        f'<rect x="{left:.1f}" y="{y:.1f}" width="{right - left:.1f}" '
        f'height="{below - y:.1f}" fill="{colour}" fill-opacity="0.6"/>'
    )
    return bar + line([(low, middle), (high, middle)], "#333333", words)


def curves(found: StudyCurves, *, is_max: bool) -> str:
    """The values that each trial reported, over their steps."""
    pieces = [(curve, numbers_of(curve)) for curve in found.curves[-_MOST_LINES:]]
    steps = [step for curve, _ in pieces for step in curve.steps]
    values = [value for _, listed in pieces for value in listed if value is not None]
    across = numbers("step", steps)
    up = objective_axis(found.objective, values, is_max=is_max)
    drawn = [
        line(
            (
                None if value is None else (across.place(step), up.place(value))
                for step, value in zip(curve.steps, listed, strict=True)
            ),
            _COLOURS.get(curve.state, _OTHER),
            f"{trial_label(curve)} ({curve.state})",
        )
        for curve, listed in pieces
    ]
    return plot(f"Intermediate values of {found.objective}", across, up, "".join(drawn))


def numbers_of(curve: TrialCurve) -> list[float | None]:
    """The values of a curve; ``None`` where one is no finite number."""
    return [value if isinstance(value, float) and is_number(value) else None
            for value in map(_float, curve.values)]  # fmt: skip


def _float(value: Any) -> float | None:
    return float(value) if is_number(value) else None


def parallel(drawn: DrawnStudy, values: ObjectiveValues, names: Sequence[str]) -> str:
    """A line for each completed trial through its parameters to its value; the best are dark."""
    trials = [trial for trial in values.trials if is_completed(trial)][-_MOST_LINES:]
    axes = [parameter_axis(drawn, trials, name) for name in names[:_MOST_AXES]]
    places = [(index + 0.5) / (len(axes) + 1) for index in range(len(axes) + 1)]
    posts = [_post(at, axis) for at, axis in zip(places, [*axes, values.axis], strict=True)]
    lines = []
    for trial in sorted(trials, key=values.goodness):
        corners: list[tuple[float, float] | None] = [
            (at, axis.place(trial.parameters[axis.name])) if axis.name in trial.parameters else None
            for at, axis in zip(places, axes, strict=False)
        ]
        corners.append((places[-1], values.axis.place(values.of(trial))))
        words = f"{trial_label(trial)}: {values.of(trial):g}"
        lines.append(line(corners, shade(values.goodness(trial)), words))
    nothing = Axis(name="", place=lambda value: value, labels=[])
    title = f"Parallel coordinates of {values.name}; the best are dark"
    return plot(title, nothing, nothing, "".join([*lines, *posts]))


def _post(at: float, axis: Axis) -> str:
    x, bottom = point(at, 0)
    labels = [
        label(x + 4, point(at, up)[1] + 4, shorten(words, 10), "start") for up, words in axis.labels
    ]
    name = label(x, bottom + 18, shorten(axis.name, 14))
    return line([(at, 0.0), (at, 1.0)], "#555555") + name + "".join(labels)


def parameter_axis(drawn: DrawnStudy, trials: Sequence[Trial], name: str) -> Axis:
    """Where the values of a parameter lie."""
    found = [trial.parameters[name] for trial in trials if name in trial.parameters]
    return axis_of(name, found, drawn.study.space.get(name))


def pairs(names: Sequence[str]) -> Iterable[tuple[str, str]]:
    """The parameters that are drawn against each other: each two of the most important."""
    return combinations(names[:_MOST_PAIRED], 2)


def trials_with(values: ObjectiveValues, *names: str) -> list[Trial]:
    """The completed trials that have all of these parameters."""
    return [
        trial
        for trial in values.trials
        if is_completed(trial) and all(name in trial.parameters for name in names)
    ]


def contour(drawn: DrawnStudy, values: ObjectiveValues, across: str, up: str) -> str:
    """The value over two parameters: between trials the near ones count most. Dark is better."""
    trials = trials_with(values, across, up)
    first, second = parameter_axis(drawn, trials, across), parameter_axis(drawn, trials, up)
    places = [
        (first.place(one.parameters[across]), second.place(one.parameters[up])) for one in trials
    ]
    goods = [values.goodness(trial) for trial in trials]
    known = [(*place, good) for place, good in zip(places, goods, strict=True)][-_NEAREST:]
    # Without crisp edges, a light line shows between two rectangles that touch.
    cells = f'<g shape-rendering="crispEdges">{"".join(_bands(known)) if known else ""}</g>'
    dots = [
        dot(*place, f"{trial_label(trial)}: {values.of(trial):g}", shade(good))
        for trial, place, good in zip(trials, places, goods, strict=True)
    ]
    title = f"{values.name} over {shorten(across, 20)} and {shorten(up, 20)}; dark is better"
    framed = f'<g stroke="white" stroke-width="1">{"".join(dots)}</g>'
    return plot(title, first, second, cells + framed)


def _bands(known: Sequence[tuple[float, float, float]]) -> Iterator[str]:
    """Rectangles of one colour each: cells of one level that lie side by side are one."""
    for row in range(_ROWS):
        levels = [
            level_at(known, (column + 0.5) / _COLUMNS, (row + 0.5) / _ROWS)
            for column in range(_COLUMNS)
        ]
        start = 0
        for column in range(1, _COLUMNS + 1):
            if column < _COLUMNS and levels[column] == levels[start]:
                continue
            x, y = point(start / _COLUMNS, (row + 1) / _ROWS)
            right, below = point(column / _COLUMNS, row / _ROWS)
            yield (
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{right - x:.1f}" '
                f'height="{below - y:.1f}" fill="{shade(levels[start] / LEVELS)}"/>'
            )
            start = column


def level_at(known: Sequence[tuple[float, float, float]], across: float, up: float) -> int:
    """How good a place is, from 0 to 9: between trials the near ones count most.

    Args:
        known: Places of trials, and from 0 to 1 how good they are.
        across: The place on the first axis.
        up: That on the second one.
    """
    weights = whole = 0.0
    for x, y, good in known:
        distance = (x - across) * (x - across) + (y - up) * (y - up) + _LEAST_DISTANCE
        weight = 1 / (distance * distance)
        weights += weight
        whole += weight * good
    return min(int(LEVELS * whole / weights), LEVELS - 1)


def pareto(drawn: DrawnStudy, first: ObjectiveValues, second: ObjectiveValues) -> str:
    """Completed trials by two objectives; those on the front are dark. Of two objectives, a line
    goes through the front.
    """
    front = {trial.number for trial in drawn.study.best_trials}
    trials = [trial for trial in first.trials if is_completed(trial)]
    places = [
        (first.axis.place(first.of(one)), second.axis.place(second.of(one))) for one in trials
    ]
    dots = [
        dot(*place, f"{trial_label(one)}: {first.of(one):g}, {second.of(one):g}",
            "#c0392b" if one.number in front else "#aaaaaa")
        for one, place in zip(trials, places, strict=True)
    ]  # fmt: skip
    on_front = sorted(
        place for one, place in zip(trials, places, strict=True) if one.number in front
    )
    steps = line(on_front, "#c0392b") if len(drawn.objectives) == 2 else ""
    title = f"{second.name[:25]} by {first.name[:25]}; the Pareto front is red"
    return plot(title, first.axis, second.axis, steps + "".join(dots))
