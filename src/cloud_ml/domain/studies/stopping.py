"""Early stopping: trials that do badly end before their time. Pure.

A rule looks at curves, which are what trials have reported so far. It keeps nothing: its rungs and
medians are computed from stored points each time, so a restart forgets none.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cloud_ml.domain.metrics.points import Point
from cloud_ml.models.common import refuse

Curve = Sequence[Point]
"""The points of a trial, so turned that less is better, in the order of their steps."""


@dataclass(frozen=True, kw_only=True)
class Stopper:
    """A rule and its options.

    Attributes:
        name: ``median``, ``percentile``, ``asha``, ``hyperband``, ``threshold`` or ``plateau``.
        warmup_steps: No trial is stopped before this step (``median``, ``percentile``,
            ``threshold``).
        min_trials: So many trials have to complete first (``median``, ``percentile``).
        percentile: So many in a hundred go on (``percentile``).
        min_steps: The step of the first rung (``asha``, ``hyperband``).
        factor: Each rung is so many times later, and one trial of so many goes on (``asha``,
            ``hyperband``).
        max_steps: The steps of a whole trial; 0 for ``asha``, which need not know (``hyperband``).
        below: A value below that ends a trial (``threshold``).
        above: A value above that does (``threshold``).
        patience: After so many steps without a better value a trial ends (``plateau``).
        min_change: A better value is better by more than this (``plateau``).
    """

    name: str
    warmup_steps: int = 0
    min_trials: int = 5
    percentile: float = 25.0
    min_steps: int = 1
    factor: int = 4
    max_steps: int = 0
    below: float | None = None
    above: float | None = None
    patience: int = 10
    min_change: float = 0.0


@dataclass(frozen=True)
class Curves:
    """What a rule looks at: the curve of a trial, those of completed ones, and those of all that
    are of the same ``bracket``.
    """

    own: Curve
    completed: Sequence[Curve]
    others: Sequence[Curve]
    bracket: int = 0


_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "median": ("warmup_steps", "min_trials"),
    "percentile": ("percentile", "warmup_steps", "min_trials"),
    "asha": ("min_steps", "factor"),
    "hyperband": ("max_steps", "min_steps", "factor"),
    "threshold": ("below", "above", "warmup_steps"),
    "plateau": ("patience", "min_change"),
}
STOPPERS = tuple(_OPTIONS)
_REAL = frozenset({"below", "above", "min_change", "percentile"})
_LEAST = {
    "min_trials": 1, "min_steps": 1, "factor": 2, "patience": 1, "warmup_steps": 0, "min_change": 0,
    "percentile": 0, "max_steps": 2,
}  # fmt: skip
_MOST = 10**15
_LARGEST = {"percentile": 100}
_USUAL_FACTOR_OF_BRACKETS = 3
_GOLDEN = (math.sqrt(5) - 1) / 2
_MOST_KEPT = 100
_TRANSLATED = {
    "medianstop": "median", "medianpruner": "median", "medianstoppingrule": "median",
    "ashascheduler": "asha", "asynchyperband": "asha", "asynchyperbandscheduler": "asha",
    "successivehalvingpruner": "asha", "percentilepruner": "percentile",
    "hyperbandpruner": "hyperband", "hyperbandscheduler": "hyperband", "bohb": "hyperband",
    "hyperbandforbohb": "hyperband", "thresholdpruner": "threshold", "patientpruner": "plateau",
    "trialplateaustopper": "plateau",
}  # fmt: skip
"""Names of Optuna, Katib and Ray Tune in small letters without signs, and ours."""
_ALIASES = {
    "n_startup_trials": "min_trials", "min_trials_required": "min_trials",
    "min_samples_required": "min_trials", "n_warmup_steps": "warmup_steps",
    "start_step": "warmup_steps", "min_resource": "min_steps", "min_iter": "min_steps",
    "max_resource": "max_steps", "max_t": "max_steps", "max_iter": "max_steps",
    "reduction_factor": "factor", "eta": "factor", "lower": "below", "upper": "above",
    "min_delta": "min_change",
}  # fmt: skip
"""Options of Optuna, Katib, Ray Tune and Weights & Biases, and ours."""
_NOT_OFFERED = {
    "wilcoxonpruner": "median", "pbt": "asha", "populationbasedtraining": "asha",
}  # fmt: skip


def parse_stopper(name: str, options: Mapping[str, Any]) -> Stopper | None:
    """The rule of that name, also of other tuners; ``None`` without a name.

    Raises:
        InvalidRequest: There is none of that name, or an option is wrong.
    """
    plain = "".join(letter for letter in name.lower() if letter.isalnum())
    if plain in ("", "none", "nop", "noppruner"):
        if options:
            raise refuse("stopper_options", dict(options), "nothing, as there is no stopper")
        return None
    rule = plain if plain in _OPTIONS else _TRANSLATED.get(plain, "")
    if not rule:
        near = _NOT_OFFERED.get(plain)
        hint = f"; {name[:50]} is not offered, write {near}" if near else ""
        raise refuse("stopper", name, ", ".join(STOPPERS) + hint)
    found = Stopper(name=rule, **_options(rule, options))
    if rule == "threshold" and found.below is None and found.above is None:
        raise refuse(
            "stopper_options", dict(options), "below or above, as the stopper is threshold"
        )
    if rule == "hyperband":
        return _with_brackets(found, options)
    return found


def _with_brackets(found: Stopper, options: Mapping[str, Any]) -> Stopper:
    """Hyperband, which has to know how long a whole trial is."""
    if "factor" not in options:
        found = replace(found, factor=_USUAL_FACTOR_OF_BRACKETS)
    if not found.max_steps:
        allowed = "max_steps, the steps of a whole trial, as the stopper is hyperband"
        raise refuse("stopper_options", dict(options), allowed)
    if found.max_steps <= found.min_steps:
        allowed = f"more than min_steps, which is {found.min_steps}"
        raise refuse("stopper_options.max_steps", found.max_steps, allowed)
    return found


def bracket_of(stopper: Stopper, number: int) -> int:
    """The bracket of a trial, by its number: in each next one the first rung is ``factor`` times
    later, and there are fewer trials (L. Li et al., 2018). 0 for rules without brackets.
    """
    if stopper.name != "hyperband":
        return 0
    count = 1
    while stopper.min_steps * stopper.factor**count < stopper.max_steps:
        count += 1
    # In the paper, bracket s has trials in proportion to eta^s / (s + 1).
    shares = [stopper.factor**left / (left + 1) for left in reversed(range(count))]
    place = (number + 0.5) * _GOLDEN % 1 * sum(shares)  # evenly, whatever their number
    for bracket, share in enumerate(shares):
        if place < share:
            return bracket
        place -= share
    return count - 1


def _options(name: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options of a rule, checked."""
    for option, value in options.items():
        field = f"stopper_options.{option}"
        if option not in _OPTIONS[name]:
            near = _ALIASES.get(option)
            hint = f"; did you mean {near}?" if near in _OPTIONS[name] else ""
            raise refuse(field, value, f"options of {name}: {', '.join(_OPTIONS[name])}{hint}")
        kinds = (int, float) if option in _REAL else (int,)
        odd = isinstance(value, float) and not math.isfinite(value)
        if isinstance(value, bool) or not isinstance(value, kinds) or odd:
            raise refuse(field, value, "a number" if option in _REAL else "a whole number")
        most = _LARGEST.get(option, _MOST)
        if not _LEAST.get(option, -math.inf) <= value <= most:
            raise refuse(field, value, f"{_LEAST.get(option, -_MOST)} to {most}")
    return options


def says_more(stopper: Stopper, before: int | None, step: int) -> bool:
    """Whether a rule that was asked at the step ``before`` may say something else at a step. One with
    rungs does not between two of them: trials that come later change nothing.
    """
    if stopper.name not in ("asha", "hyperband"):
        return True
    rung = stopper.min_steps
    while before is not None and rung <= before:
        rung *= stopper.factor
    return rung <= step


def why_stop(stopper: Stopper, curves: Curves) -> str:
    """Why a trial that runs should end now; empty while it goes on."""
    if not curves.own:
        return ""
    return _RULES[stopper.name](stopper, curves)


def _median(stopper: Stopper, curves: Curves) -> str:
    """Worse than the median of completed trials at the same step, by its best value so far."""
    return _worse_than(stopper, curves, 50.0, "the median")


def _percentile(stopper: Stopper, curves: Curves) -> str:
    """Likewise, by another percentile."""
    share = stopper.percentile
    return _worse_than(stopper, curves, share, f"the best {share:g} %")


def _worse_than(stopper: Stopper, curves: Curves, percentile: float, name: str) -> str:
    step = curves.own[-1].step
    if step < stopper.warmup_steps or len(curves.completed) < stopper.min_trials:
        return ""
    best = min((point.value for point in curves.own if not point.is_nan), default=math.inf)
    known = [_point_by(curve, step) for curve in curves.completed]
    values = [point.value for point in known if point is not None and not point.is_nan]
    if len(values) < stopper.min_trials or best <= _quantile(values, percentile / 100):
        return ""
    return f"its best value by step {step} is worse than {name} of {len(values)} trials"


def _quantile(values: Sequence[float], share: float) -> float:
    """The value below which such a share of values is, between two of them on a line."""
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = math.floor(at)
    high, part = min(low + 1, len(ordered) - 1), at - low
    return ordered[low] if not part else (1 - part) * ordered[low] + part * ordered[high]


def _hyperband(stopper: Stopper, curves: Curves) -> str:
    """The same within the bracket of the trial."""
    first = stopper.min_steps * stopper.factor**curves.bracket
    return _asha(replace(stopper, min_steps=first), curves)


def _asha(stopper: Stopper, curves: Curves) -> str:
    """Not among the best of those that reached a rung before it (L. Li et al., 2018). Trials that
    come later change nothing for one that has passed.
    """
    rung, last = stopper.min_steps, stopper.max_steps or math.inf
    while rung < last and (own := _point_from(curves.own, rung)) is not None:
        if own.is_nan:
            return f"its value at step {own.step} is no number"
        known = [_point_from(curve, rung) for curve in curves.others]
        before = [point for point in known if point is not None and point.at <= own.at]
        better = sum(point.value < own.value for point in before)
        # While fewer than ``factor`` trials have reached the rung, the best of them goes on.
        most = max(1, (len(before) + 1) // stopper.factor)
        if better >= most:
            count = len(before) + 1
            return f"at step {own.step} it was not among the best {most} of {count} trials"
        rung *= stopper.factor
    return ""


def _threshold(stopper: Stopper, curves: Curves) -> str:
    """A value that is no number, or beyond what was named."""
    for point in curves.own:
        if point.step < stopper.warmup_steps:
            continue
        if point.is_nan:
            return f"its value at step {point.step} is no number"
        low = stopper.below is not None and point.value < stopper.below
        if low or (stopper.above is not None and point.value > stopper.above):
            return f"its value at step {point.step} is beyond the threshold"
    return ""


def _plateau(stopper: Stopper, curves: Curves) -> str:
    """No better value for so many steps."""
    best, since = math.inf, curves.own[0].step
    for point in curves.own:
        if point.value < best - stopper.min_change:
            best, since = point.value, point.step
    still = curves.own[-1].step - since
    return f"no better value for {still} steps" if still >= stopper.patience else ""


_RULES: Mapping[str, Callable[[Stopper, Curves], str]] = {
    "median": _median,
    "percentile": _percentile,
    "asha": _asha,
    "hyperband": _hyperband,
    "threshold": _threshold,
    "plateau": _plateau,
}


def condensed(stopper: Stopper, curve: Curve) -> Curve:
    """What has to be kept of the curve of a trial that has ended."""
    if stopper.name in ("median", "percentile"):
        every = len(curve) // _MOST_KEPT + 1
        return tuple(curve[::every])
    found: list[Point] = []
    rung = stopper.min_steps
    has_rungs = stopper.name in ("asha", "hyperband")
    while has_rungs and (point := _point_from(curve, rung)) is not None:
        found.append(point)
        rung *= stopper.factor
    return tuple(dict.fromkeys(found))


def _point_by(curve: Curve, step: int) -> Point | None:
    """The last point at or before a step."""
    at = bisect.bisect_right(curve, step, key=_step)
    return curve[at - 1] if at else None


def _point_from(curve: Curve, step: int) -> Point | None:
    """The first point at or after a step."""
    at = bisect.bisect_left(curve, step, key=_step)
    return curve[at] if at < len(curve) else None


def _step(point: Point) -> int:
    return point.step


def options_of(stopper: Stopper) -> Mapping[str, Any]:
    """The options that are in force."""
    found = {name: getattr(stopper, name) for name in _OPTIONS[stopper.name]}
    return {name: value for name, value in found.items() if value is not None}


def turned(stopper: Stopper) -> Stopper:
    """The rule for curves whose sign was changed."""
    below = None if stopper.above is None else -stopper.above
    above = None if stopper.below is None else -stopper.below
    return replace(stopper, below=below, above=above)
