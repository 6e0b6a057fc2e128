"""Drawings of a study as SVG, or as one HTML file: no script, and nothing from elsewhere.

Names and values of parameters are a tenant's words: each goes through ``_text``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from cloud_ml.models.study import Study, Trial

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 300, 90, 20, 40, 50
# A study may have a thousand categories; a name may be as long as an argument.
_MOST_LABELS, _LONGEST_TEXT = 12, 60
_NOT_IN_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'">
<title>{title}</title></head>
<body><h1>{title}</h1>
<p>{summary}</p>
{plots}
</body></html>
"""


@dataclass(frozen=True, kw_only=True)
class _Axis:
    """Where a value lies between 0 and 1, and the labels of some places."""

    name: str
    place: Callable[[Any], float]
    labels: Sequence[tuple[float, str]]


def html_of(study: Study) -> str:
    """One file that needs no other."""
    best = "No trial has a value yet."
    if study.best is not None and study.best.value is not None:
        best = f"The best is {study.best.value:g}, of {study.best.job}."
    summary = f"{study.ended} of {study.max_trials} trials have ended. {best}"
    plots = "\n".join(_svg(_HEIGHT, [plot]) for plot in _plots(study))
    title = _text(f"Study {study.name}")
    return _PAGE.format(title=title, summary=_text(summary, longest=300), plots=plots)


def svg_of(study: Study) -> str:
    """All plots in one drawing, one below the other."""
    plots = [
        f'<g transform="translate(0 {index * _HEIGHT})">{plot}</g>'
        for index, plot in enumerate(_plots(study))
    ]
    return _svg(_HEIGHT * len(plots), plots) + "\n"


def _svg(height: int, plots: Iterable[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="12">'
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>{"".join(plots)}</svg>'
    )


def _plots(study: Study) -> list[str]:
    """The history, then one slice for each parameter."""
    metric = study.objective.rpartition(":")[0]
    trials = [trial for trial in study.trials if _is_drawn(trial)]
    values = _numbers(metric, [trial.value for trial in trials])
    return [
        _history(study, trials, values),
        *(_slice(name, trials, values, study.space[name]) for name in study.space),
    ]


def _is_drawn(trial: Trial) -> bool:
    return trial.value is not None and math.isfinite(trial.value)


def _history(study: Study, trials: Sequence[Trial], values: _Axis) -> str:
    """The value of each trial, and a line of the best completed one so far."""
    numbers = _numbers("trial", [trial.number for trial in trials])
    better = max if study.objective.endswith(":max") else min
    best: float | None = None
    line = []
    for trial in trials:
        if trial.state != "Completed" or trial.value is None:
            continue
        if best is not None:
            line.append(_point(numbers.place(trial.number), values.place(best)))
        best = trial.value if best is None else better(best, trial.value)
        line.append(_point(numbers.place(trial.number), values.place(best)))
    corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in line)
    drawn = f'<polyline points="{corners}" fill="none" stroke="#c0392b"/>' if line else ""
    dots = [_dot(trial, numbers.place(trial.number), values) for trial in trials]
    return _plot(f"History of {values.name}", numbers, values, drawn + "".join(dots))


def _slice(name: str, trials: Sequence[Trial], values: _Axis, space: Any) -> str:
    """The value of each trial over one of its parameters."""
    having = [trial for trial in trials if name in trial.parameters]
    axis = _axis(name, [trial.parameters[name] for trial in having], space)
    dots = [_dot(trial, axis.place(trial.parameters[name]), values) for trial in having]
    return _plot(f"{values.name} by {name}", axis, values, "".join(dots))


def _axis(name: str, found: Sequence[Any], space: Any) -> _Axis:
    """Of numbers, by their scale; anything else has one place for each value."""
    if not all(_is_number(value) for value in found):
        return _categories(name, found)
    is_log = isinstance(space, Mapping) and space.get("scale") == "log"
    return _numbers(name, found, is_log=is_log and all(value > 0 for value in found))


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def _categories(name: str, found: Sequence[Any]) -> _Axis:
    names = sorted({str(value) for value in found})
    places = {one: (index + 0.5) / len(names) for index, one in enumerate(names)}
    step = -(-len(names) // _MOST_LABELS)
    labels = [(places[one], one[: _LONGEST_TEXT // len(names[:6])]) for one in names[::step]]
    return _Axis(name=name, place=lambda value: places[str(value)], labels=labels)


def _numbers(name: str, found: Sequence[Any], *, is_log: bool = False) -> _Axis:
    if not found:
        return _Axis(name=name, place=lambda value: 0.5, labels=[])

    def scaled(value: Any) -> float:
        return math.log(value) if is_log else float(value)

    low, high = min(found), max(found)
    # Halves, because the distance of two finite numbers may be infinite.
    start, length = scaled(low) / 2, scaled(high) / 2 - scaled(low) / 2
    if length == 0:
        return _Axis(name=name, place=lambda value: 0.5, labels=[(0.5, f"{low:g}")])
    labels = [(0.0, f"{low:g}"), (1.0, f"{high:g}")]
    return _Axis(name=name, place=lambda value: (scaled(value) / 2 - start) / length, labels=labels)


def _point(across: float, up: float) -> tuple[float, float]:
    x = _LEFT + across * (_WIDTH - _LEFT - _RIGHT)
    return x, _HEIGHT - _BOTTOM - up * (_HEIGHT - _TOP - _BOTTOM)


def _dot(trial: Trial, across: float, values: _Axis) -> str:
    x, y = _point(across, values.place(trial.value))
    colour = "#2471a3" if trial.state == "Completed" else "#aaaaaa"
    words = _text(f"{trial.job}: {trial.value:g} ({trial.state})")
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"><title>{words}</title></circle>'
    )


def _plot(title: str, across: _Axis, up: _Axis, drawn: str) -> str:
    left, bottom = _point(0, 0)
    right, top = _point(1, 1)
    middle = (left + right) / 2
    labels = [_label(_point(at, 0)[0], bottom + 18, text) for at, text in across.labels]
    labels += [_label(left - 8, _point(0, at)[1] + 4, text, "end") for at, text in up.labels]
    return (
        f'<path d="M{left} {top}V{bottom}H{right}" fill="none" stroke="#555555"/>'
        + _label(middle, 20, title)
        + _label(middle, bottom + 38, across.name)
        + _label(left, top - 8, up.name)
        + "".join(labels)
        + drawn
    )


def _label(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{_text(text)}</text>'


def _text(text: str, *, longest: int = _LONGEST_TEXT) -> str:
    """Text for XML and HTML: escaped, short, and without characters that XML has no place for."""
    if len(text) > longest:
        text = text[: longest - 1] + "…"
    return escape(_NOT_IN_XML.sub("\ufffd", text))
