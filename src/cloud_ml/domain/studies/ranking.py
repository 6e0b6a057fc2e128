"""Which trials of a study are the best. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from cloud_ml.domain.studies.repeats import find_estimates
from cloud_ml.domain.studies.spec import Goal, StudySpec, TrialState, TrialStatus
from cloud_ml.models.studies.pareto import Costs, front_of


def sign_of(goal: Goal) -> int:
    """What makes of a value one of which less is better."""
    return 1 if goal is Goal.MINIMIZE else -1


def best_of(spec: StudySpec, trials: Sequence[TrialStatus]) -> TrialStatus | None:
    """The completed trial with the best value; of equals the earliest. Once some are repeated, the
    one of them with the best mean. ``None`` with several objectives: see ``front_trials``.
    """
    if spec.further:
        return None
    sign = sign_of(spec.goal)
    means = {number: one.mean for number, one in find_estimates(trials).items()}
    done = [t for t in trials if t.state is TrialState.COMPLETED and t.value is not None]
    values = means or {t.number: t.value or 0 for t in done}
    ranked = [t for t in done if t.number in values]
    return min(ranked, key=lambda trial: (sign * values[trial.number], trial.number), default=None)


def costs_of(spec: StudySpec, trial: TrialStatus) -> Costs | None:
    """The values of a trial, so turned that less is better; ``None`` if it lacks one."""
    values = trial.values if spec.further else (trial.value,)
    if len(values) != len(spec.objectives):
        return None
    costs = [
        sign_of(one.goal) * value
        for one, value in zip(spec.objectives, values, strict=True)
        if value is not None
    ]
    return tuple(costs) if len(costs) == len(values) else None


def front_trials(spec: StudySpec, trials: Sequence[TrialStatus]) -> list[TrialStatus]:
    """The completed trials that no other one dominates. With one objective, see ``best_of``."""
    done = [(t, costs_of(spec, t)) for t in trials if t.state is TrialState.COMPLETED]
    known = [(trial, costs) for trial, costs in done if costs is not None]
    numbers = front_of([costs for _, costs in known])
    return [known[number][0] for number in numbers]


def values_text(spec: StudySpec, trial: TrialStatus) -> str:
    """What a trial has reached: ``loss = 0.5``, or ``error = 0.1, latency = 20``."""
    values = trial.values if spec.further else (trial.value,)
    named = zip(spec.objectives, values, strict=False)
    return ", ".join(f"{one.metric} = {value:g}" for one, value in named if value is not None)
