"""Plots for a terminal: points in a field of characters, and bars."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cloud_ml.cli.display.drawing import Axis
from cloud_ml.cli.display.study_values import DrawnStudy, ObjectiveValues, is_completed
from cloud_ml.models.study_readouts import StudyImportance

_COLUMNS, _ROWS, _BAR = 64, 12, 40
_TRIAL, _BEST, _OTHER = "●", "─", "·"
_ORDER = (_BEST, _OTHER, _TRIAL)
Mark = tuple[float, float, str]
"""A place from 0 to 1 on both axes, and what stands there."""


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


def field(marks: Sequence[Mark], up: Axis, below: str) -> Iterator[str]:
    """Marks in a field; what counts stands over the rest."""
    cells = [[" "] * _COLUMNS for _ in range(_ROWS)]
    for across, at, mark in sorted(marks, key=lambda one: _ORDER.index(one[2])):
        column, row = round(across * (_COLUMNS - 1)), round((1 - at) * (_ROWS - 1))
        cells[row][column] = mark
    labels = {round((1 - at) * (_ROWS - 1)): words[:10] for at, words in up.labels}
    for row, line in enumerate(cells):
        yield f"{labels.get(row, ''):>10} │{''.join(line).rstrip()}"
    yield " " * 11 + "└" + "─" * _COLUMNS
    yield f"{below:>{12 + _COLUMNS}}"


def importance_lines(found: StudyImportance) -> Iterator[str]:
    """A bar for the share of each parameter."""
    yield f"Importance for {found.objective} (fANOVA, from {found.trials} trials)"
    for one in found.parameters:
        bar = bar_of(one.fanova, _BAR)
        yield f"{one.name[:20]:>20} {bar:<{_BAR}} {one.fanova:.2f}"


def bar_of(share: float, width: int) -> str:
    """A share, from 0 to 1, as a bar."""
    return "█" * round(min(max(share, 0.0), 1.0) * width)
