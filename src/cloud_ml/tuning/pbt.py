"""``pbt``: population based training (M. Jaderberg et al., 2017), without waiting for generations.

A trial is one generation of a member: it goes on from the checkpoint of its parent. Where a member
is among the worst, its next parent is one of the best, whose parameters are changed a little. All
follows from the trials, so any server continues, and says the same again.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cloud_ml.domain.studies.conditions import only_active
from cloud_ml.domain.studies.constraints import all_hold
from cloud_ml.domain.studies.population import Population
from cloud_ml.domain.studies.ranking import costs_of
from cloud_ml.domain.studies.space import Parameter, Scale
from cloud_ml.domain.studies.spec import StudySpec, TrialState, TrialStatus
from cloud_ml.domain.studies.values import Parameters, Suggestion, Value, same
from cloud_ml.tuning import qmc
from cloud_ml.tuning.base import problem_of

_DRAWS = 100
"""So often parameters are changed until they keep the constraints; else they stay as they are."""


@dataclass(frozen=True)
class _Member:
    """A member of the population, and its trials in the order of their numbers."""

    number: int
    trials: Sequence[TrialStatus]

    @property
    def last_completed(self) -> TrialStatus | None:
        """The last trial that has completed: its checkpoint is the state of the member."""
        done = (one for one in reversed(self.trials) if one.state is TrialState.COMPLETED)
        return next(done, None)


def suggest(spec: StudySpec, trials: Sequence[TrialStatus], number: int) -> Suggestion:
    """The trial of that number: of the member that has had the fewest. Members that run come last,
    so none of them is chosen while there is another one.
    """
    options = spec.population or Population()
    if number < options.population:
        parameters = qmc.suggest(problem_of(spec, trials, number))
        return Suggestion(parameters, member=number)
    members = _members_of(options, trials)
    member = min(members, key=_turn_of)
    luck = random.Random(f"{spec.seed}/{number}/pbt")  # noqa: S311 - guards nothing
    parent = _find_parent(spec, options, members, member, luck)
    if parent is None:  # nothing has completed yet: the member begins again
        return Suggestion(qmc.suggest(problem_of(spec, trials, number)), member=member.number)
    parameters = parent.parameters
    if parent.member != member.number:
        parameters = explore(spec, options, parameters, luck)
    return Suggestion(parameters, parent=parent.number, member=member.number)


def _members_of(options: Population, trials: Sequence[TrialStatus]) -> Sequence[_Member]:
    own: list[list[TrialStatus]] = [[] for _ in range(options.population)]
    for trial in trials:
        if trial.member is not None:
            own[trial.member].append(trial)
    return [_Member(place, each) for place, each in enumerate(own)]


def _turn_of(member: _Member) -> tuple[bool, int, int]:
    runs = any(not trial.over for trial in member.trials)
    return runs, len(member.trials), member.number


def _find_parent(
    spec: StudySpec,
    options: Population,
    members: Sequence[_Member],
    member: _Member,
    luck: random.Random,
) -> TrialStatus | None:
    """The trial from whose checkpoint a member goes on; ``None`` if none has completed.

    One whose last trial has not completed counts as one of the worst: it may have diverged.
    """
    states = [done for one in members if (done := one.last_completed) is not None]
    ranked = sorted(states, key=lambda trial: (costs_of(spec, trial) or (), trial.number))
    count = _count_of(options.quantile, len(ranked))
    own = member.last_completed
    failed = not member.trials or member.trials[-1] is not own
    if own is not None and not failed and own not in ranked[len(ranked) - count :]:
        return own
    best = [trial for trial in ranked[: max(count, int(failed))] if trial is not own]
    return luck.choice(best) if best else own


def _count_of(quantile: float, members: int) -> int:
    """How many members are the worst, and as many the best: one at least, unless none is wanted."""
    return min(max(math.floor(quantile * members), 1 if quantile else 0), members // 2)


def explore(
    spec: StudySpec, options: Population, parameters: Parameters, luck: random.Random
) -> Parameters:
    """Parameters near these, in the space and by its constraints. A parameter that becomes active
    is drawn from its range.
    """
    for _ in range(_DRAWS):
        changed = {one.name: _change_value(one, parameters, options, luck) for one in spec.space}
        found = only_active(spec.space, changed)
        if all_hold(spec.constraints, found):
            return found
    return parameters


def _change_value(
    parameter: Parameter,
    parameters: Mapping[str, Value],
    options: Population,
    luck: random.Random,
) -> Value:
    """A value near the one of the parameters: resampled, a neighbour in a list, or a multiple."""
    drawn = luck.random() < options.resample_probability
    if drawn or parameter.name not in parameters:
        return parameter.sample(luck)
    value = parameters[parameter.name]
    if parameter.values:
        return _take_neighbour(parameter, value, luck)
    factor, number = luck.choice(options.factors), float(value)
    changed = 1 - (1 - number) * factor if parameter.scale is Scale.REVERSE_LOG else number * factor
    changed = min(max(changed, parameter.low), parameter.high)
    return _take_step(parameter, number, changed) if parameter.finite else changed


def _take_neighbour(parameter: Parameter, value: Value, luck: random.Random) -> Value:
    place = next((n for n, one in enumerate(parameter.values) if same(one, value)), 0)
    place += luck.choice((-1, 1))
    return parameter.value_at(min(max(place, 0), parameter.size - 1))


def _take_step(parameter: Parameter, value: float, number: float) -> Value:
    """The value of a range of finitely many that is nearest; at least one step away from the value
    of before, if there is one in that direction.
    """
    before, place = parameter.number_of(value), parameter.number_of(number)
    if place == before and number != value:
        place = before + (1 if number > value else -1)
    return parameter.value_at(min(max(place, 0), parameter.size - 1))
