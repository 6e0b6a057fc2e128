"""What plots are made of: axes, labels and text, as SVG. No script, and nothing from elsewhere.

Words of a tenant, such as names and values of parameters, go through ``text``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 300, 90, 20, 40, 50
# A study may have a thousand categories; a name may be as long as an argument.
_MOST_LABELS, _LONGEST_TEXT = 12, 60
# Half the width of a digit in the wider fonts that "sans-serif" may be.
_HALF_CHARACTER = 4.0
_FEWEST_WITH_EXTREMES, _FAR = 8, 3.0
_NOT_IN_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_PALE, _DARK = (214, 229, 243), (21, 67, 112)


@dataclass(frozen=True, kw_only=True)
class Axis:
    """Where a value lies between 0 and 1, and the labels of some places."""

    name: str
    place: Callable[[Any], float]
    labels: Sequence[tuple[float, str]]


def svg(height: int, plots: Iterable[str]) -> str:
    """A drawing of its own."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">'
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>{"".join(plots)}</svg>'
    )


def axis_of(name: str, found: Sequence[Any], space: Any) -> Axis:
    """Of numbers, by their scale; anything else has one place for each value."""
    if not all(is_number(value) for value in found):
        return categories(name, found)
    scale = space.get("scale") if isinstance(space, Mapping) else None
    if scale == "log" and all(value > 0 for value in found):
        return numbers(name, found, scaled=math.log)
    if scale == "reverse-log" and all(0 <= value < 1 for value in found):
        return numbers(name, found, scaled=lambda value: -math.log1p(-value))
    return numbers(name, found)


def is_number(value: Any) -> bool:
    """Whether this is a finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def categories(name: str, found: Sequence[Any]) -> Axis:
    """One place for each value."""
    names = sorted({str(value) for value in found})
    places = {one: (index + 0.5) / len(names) for index, one in enumerate(names)}
    step = -(-len(names) // _MOST_LABELS)
    labels = [(places[one], one[: _LONGEST_TEXT // len(names[:6])]) for one in names[::step]]
    return Axis(name=name, place=lambda value: places[str(value)], labels=labels)


def numbers(name: str, found: Sequence[Any], *, scaled: Callable[[Any], float] = float) -> Axis:
    """From the least number to the largest, spread by what grows with them."""
    if not found:
        return Axis(name=name, place=lambda value: 0.5, labels=[])
    low, high = min(found), max(found)
    # Halves, because the distance of two finite numbers may be infinite.
    start, length = scaled(low) / 2, scaled(high) / 2 - scaled(low) / 2
    if length == 0:
        return Axis(name=name, place=lambda value: 0.5, labels=[(0.5, f"{low:g}")])
    labels = [(0.0, f"{low:g}"), (1.0, f"{high:g}")]
    return Axis(name=name, place=lambda value: (scaled(value) / 2 - start) / length, labels=labels)


def objective_axis(name: str, found: Sequence[float], *, is_max: bool) -> Axis:
    """From the best value to the worst. One that diverged would press all others into one line, so
    bad values far beyond most are drawn at the end, and its label says so (``≥ 3.2``).
    """
    near = _without_extremes(found, is_max=is_max)
    axis = numbers(name, near)
    if len(near) == len(found) or len(axis.labels) < 2:
        return axis
    (low, least), (high, most) = axis.labels
    labels = [(low, f"≤ {least}"), (high, most)] if is_max else [(low, least), (high, f"≥ {most}")]
    return Axis(name=name, place=lambda value: min(max(axis.place(value), 0.0), 1.0), labels=labels)


def _without_extremes(found: Sequence[float], *, is_max: bool) -> Sequence[float]:
    """Without bad values that are more than three interquartile ranges away (J. Tukey, 1977)."""
    if len(found) < _FEWEST_WITH_EXTREMES:
        return found
    halves = sorted(value / 2 for value in found)  # see ``numbers``
    first, third = halves[len(halves) // 4], halves[3 * len(halves) // 4]
    reach = _FAR * (third - first)
    if not 0 < reach < math.inf:
        return found
    return [
        value
        for value in found
        if (value / 2 >= first - reach if is_max else value / 2 <= third + reach)
    ]


def point(across: float, up: float) -> tuple[float, float]:
    """A place of a plot in the units of its drawing."""
    x = LEFT + across * (WIDTH - LEFT - RIGHT)
    return x, HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)


def dot(across: float, up: float, words: str, colour: str) -> str:
    """A circle that says its words when a mouse is over it."""
    x, y = point(across, up)
    title = f"<title>{text(words)}</title>"
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}">{title}</circle>'


def line(places: Iterable[tuple[float, float] | None], colour: str, words: str = "") -> str:
    """A line through places; ``None`` is a gap."""
    steps, pen = [], "M"
    for place in places:
        if place is None:
            pen = "M"
            continue
        x, y = point(*place)
        steps.append(f"{pen}{x:.1f} {y:.1f}")
        pen = "L"
    if not steps:
        return ""
    title = f"<title>{text(words)}</title>" if words else ""
    return f'<path d="{"".join(steps)}" fill="none" stroke="{colour}">{title}</path>'


def shade(share: float) -> str:
    """A blue: pale at 0, dark at 1."""
    share = min(max(share, 0.0), 1.0)
    red, green, blue = (
        round(pale + share * (dark - pale)) for pale, dark in zip(_PALE, _DARK, strict=True)
    )
    return f"#{red:02x}{green:02x}{blue:02x}"


def plot(title: str, across: Axis, up: Axis, drawn: str) -> str:
    """Two axes with their labels, a title, and what is drawn between them."""
    left, bottom = point(0, 0)
    right, top = point(1, 1)
    middle = (left + right) / 2
    labels = [
        label(_inside(point(at, 0)[0], words), bottom + 18, words) for at, words in across.labels
    ]
    labels += [label(left - 8, point(0, at)[1] + 4, words, "end") for at, words in up.labels]
    return (
        f'<path d="M{left} {top}V{bottom}H{right}" fill="none" stroke="#555555"/>'
        + label(middle, 20, title)
        + label(middle, bottom + 38, across.name)
        + label(left, top - 8, up.name)
        + "".join(labels)
        + drawn
    )


def _inside(x: float, words: str) -> float:
    """Where the middle of words at ``x`` is, so that their end stays in the drawing."""
    return min(x, WIDTH - _HALF_CHARACTER * min(len(words), _LONGEST_TEXT))


def label(x: float, y: float, words: str, anchor: str = "middle") -> str:
    """Text at a place."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text(words)}</text>'


def text(words: str, *, longest: int = _LONGEST_TEXT) -> str:
    """Text for XML and HTML: escaped, short, and without characters that XML has no place for."""
    return escape(_NOT_IN_XML.sub("\ufffd", shorten(words, longest)))


def shorten(words: str, longest: int) -> str:
    """At most so many characters; the last one tells that there were more."""
    return words if len(words) <= longest else words[: longest - 1] + "…"
