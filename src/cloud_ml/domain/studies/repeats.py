"""Repeats of the best trials, for objectives with noise: which comes next, and what they say of a
trial. Pure, and a function of the trials alone.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cloud_ml.domain.studies.spec import Goal, StudySpec, TrialState, TrialStatus


@dataclass(frozen=True)
class Estimate:
    """What a trial and its repeats say of its parameters: the mean of the values of ``runs`` that
    have completed, and its standard error, which takes two.
    """

    mean: float
    standard_error: float | None
    runs: int


def count_searched(trials: Sequence[TrialStatus]) -> int:
    """How many trials are no repeats: these count for ``max_trials``."""
    return sum(trial.repeat_of is None for trial in trials)


def find_estimates(trials: Sequence[TrialStatus]) -> Mapping[int, Estimate]:
    """The estimates of trials that are repeated, by their numbers."""
    values: dict[int, list[float]] = defaultdict(list)
    for trial in trials:
        if trial.repeat_of is not None and _is_done(trial) and trial.value is not None:
            values[trial.repeat_of].append(trial.value)
    repeated = {trial.repeat_of for trial in trials if trial.repeat_of is not None}
    for trial in trials:
        if trial.number in repeated and trial.value is not None:
            values[trial.number].append(trial.value)
    return {number: _estimate(each) for number, each in values.items()}


def _estimate(values: Sequence[float]) -> Estimate:
    count = len(values)
    error = statistics.stdev(values) / math.sqrt(count) if count > 1 else None
    return Estimate(statistics.fmean(values), error, count)


def next_repeat(spec: StudySpec, trials: Sequence[TrialStatus]) -> TrialStatus | None:
    """The trial that is run again next; ``None`` if none is.

    When all trials of the search have ended, the best of them by their own values are repeated in
    turn, so that all have had as many runs when time runs out.
    """
    if not spec.repeats or count_searched(trials) < spec.max_trials:
        return None
    search = [trial for trial in trials if trial.repeat_of is None]
    if not all(trial.over for trial in search):
        return None
    sign = 1 if spec.goal is Goal.MINIMIZE else -1
    done = [trial for trial in search if _is_done(trial) and trial.value is not None]
    done.sort(key=lambda trial: (sign * (trial.value or 0), trial.number))
    counts = Counter(trial.repeat_of for trial in trials)
    left = [one for one in done[: spec.repeat_best] if counts[one.number] < spec.repeats]
    return min(left, key=lambda trial: counts[trial.number], default=None)


def _is_done(trial: TrialStatus) -> bool:
    return trial.state is TrialState.COMPLETED
