"""The objectives of a study: read from what is asked for, and their Pareto front shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cloud_ml.domain.studies.ranking import costs_of, front_trials, sign_of
from cloud_ml.domain.studies.spec import Goal, Objective, StudyRecord, TrialState, TrialStatus
from cloud_ml.models.common import refuse
from cloud_ml.models.studies.pareto import hypervolume
from cloud_ml.models.studies.study import Trial

MOST_OBJECTIVES = 4
_GOALS = {
    "min": Goal.MINIMIZE,
    "max": Goal.MAXIMIZE,
    "minimize": Goal.MINIMIZE,
    "maximize": Goal.MAXIMIZE,
}
_LONGEST_METRIC = 250


def parse_objectives(objectives: str | list[str]) -> list[Objective]:
    """The objectives that are asked for.

    Raises:
        InvalidRequest: One is wrong, or there are too many.
    """
    if isinstance(objectives, str):
        return [_parse("objective", objectives)]
    if not 1 <= len(objectives) <= MOST_OBJECTIVES:
        raise refuse("objective", objectives, f"1 to {MOST_OBJECTIVES} objectives")
    found: list[Objective] = []
    for number, text in enumerate(objectives):
        field = f"objective[{number}]"
        one = _parse(field, text)
        if one.metric in [other.metric for other in found]:
            raise refuse(field, text, "each metric once")
        found.append(one)
    return found


def _parse(field: str, text: str) -> Objective:
    metric, colon, goal = text.rpartition(":")
    if not colon or goal not in _GOALS:
        name = metric if colon and metric else text.strip(":") or "accuracy"
        if metric in _GOALS:  # the goal stands first, as some write it
            name = goal
        raise refuse(field, text, f"{name[:50]}:min or {name[:50]}:max")
    if not 0 < len(metric) <= _LONGEST_METRIC or not metric.isprintable():
        raise refuse(field, text, "METRIC:min or METRIC:max, such as loss:min")
    return Objective(metric, _GOALS[goal])


def front_fields(record: StudyRecord, shown: Callable[[TrialStatus], Trial]) -> Mapping[str, Any]:
    """What a study with several objectives shows of its Pareto front. With one it is the best."""
    spec, trials = record.spec, record.status.trials
    if not spec.further:
        return {}
    front = front_trials(spec, trials)
    done = [costs_of(spec, trial) for trial in trials if trial.state is TrialState.COMPLETED]
    costs = [each for each in done if each is not None]
    if not costs:
        return {}
    worst = tuple(max(each) for each in zip(*costs, strict=True))
    ours = [each for trial in front if (each := costs_of(spec, trial)) is not None]
    return {
        "best_trials": [shown(trial) for trial in front],
        "front": len(front),
        "hypervolume": hypervolume(ours, worst),
        "reference": [
            sign_of(one.goal) * value for one, value in zip(spec.objectives, worst, strict=True)
        ],
    }
