"""How Optuna's client sees trials, also those that it did not make. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cloud_ml.domain.studies.optuna_distributions import (
    distribution_of,
    internal_of,
    parse_distribution,
)
from cloud_ml.domain.studies.spec import StudyRecord, StudyStatus, TrialState, TrialStatus

RUNNING, COMPLETE, PRUNED, FAIL, WAITING = range(5)
"""States of trials, as Optuna numbers them."""
STATES = {
    RUNNING: TrialState.RUNNING,
    COMPLETE: TrialState.COMPLETED,
    PRUNED: TrialState.EARLY_STOPPED,
    FAIL: TrialState.FAILED,
    WAITING: TrialState.WAITING,
}
_NUMBERS = {state: number for number, state in STATES.items()}


@dataclass(frozen=True, kw_only=True)
class OptunaTrialView:
    """A trial as it travels to Optuna's client and, as a template, back."""

    number: int = 0
    state: int = RUNNING
    values: tuple[float, ...] = ()
    started: str = ""
    completed: str = ""
    params: Mapping[str, float] = field(default_factory=dict)
    distributions: Mapping[str, str] = field(default_factory=dict)
    user: Mapping[str, str] = field(default_factory=dict)
    system: Mapping[str, str] = field(default_factory=dict)
    intermediate: Mapping[int, float] = field(default_factory=dict)


def to_optuna(record: StudyRecord, trial: TrialStatus) -> OptunaTrialView:
    """A trial as Optuna's client sees it, also one that it did not make."""
    kept = trial.optuna
    state = _NUMBERS.get(trial.state, FAIL)
    if kept is None:
        return _foreign_to_optuna(record, trial, state)
    return OptunaTrialView(
        number=trial.number,
        state=state,
        values=tuple(map(float, kept.values)),
        started=kept.started,
        completed=kept.completed,
        params={name: float(text) for name, text in kept.internal.items()},
        distributions=kept.distributions,
        user=kept.user,
        system=kept.system,
        intermediate=reports_of(trial)
        | {int(at): float(text) for at, text in kept.intermediate.items()},
    )


def _foreign_to_optuna(record: StudyRecord, trial: TrialStatus, state: int) -> OptunaTrialView:
    """A trial of a study of ours: its space is the same for all trials."""
    params, distributions = dict[str, float](), dict[str, str]()
    for parameter in record.spec.space:
        internal = internal_of(parameter, trial.parameters.get(parameter.name))
        if internal is not None:
            params[parameter.name] = internal
            distributions[parameter.name] = distribution_of(parameter)
    others = {name: value for name, value in trial.parameters.items() if name not in params}
    all_values = trial.values if record.spec.further else (trial.value,)
    known = tuple(value for value in all_values if value is not None)
    valued = len(known) == len(record.spec.objectives) and state in (COMPLETE, PRUNED)
    return OptunaTrialView(
        number=trial.number,
        state=state,
        values=known if valued else (),
        params=params,
        distributions=distributions,
        user={name: json.dumps(value) for name, value in others.items()},
        intermediate=reports_of(trial),
    )


def reports_of(trial: TrialStatus) -> dict[int, float]:
    """The values that a trial reported, by their steps."""
    return {point.step: point.value for point in trial.points}


def space_of(status: StudyStatus) -> dict[str, Any]:
    """The parameters that trials have had so far, as a space of ours has them."""
    found: dict[str, str] = {}
    for trial in status.trials:
        found.update(trial.optuna.distributions if trial.optuna else {})
    return {name: parse_distribution(text).shown() for name, text in found.items()}
