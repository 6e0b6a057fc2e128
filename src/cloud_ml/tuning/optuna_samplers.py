"""``optuna:SAMPLER``: samplers of the package Optuna, made anew for each suggestion.

The history becomes a study of Optuna in memory, and the sampler is asked for one more trial. A
sampler that keeps its state in attributes of trials has all trials asked and told again, one after
another, so the attributes are as they were. Its luck comes from the study's seed and the number of
each trial. Only the public interface of Optuna is used.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from cloud_ml.domain.studies.conditions import is_active
from cloud_ml.domain.studies.samplers import PREFIX, sampler_of
from cloud_ml.domain.studies.space import Parameter, Scale
from cloud_ml.domain.studies.values import Parameters
from cloud_ml.tuning.base import Observation, Outcome, Problem, first_untried

_LARGEST_SEED = 2**32
_STATES = {
    Outcome.DONE: TrialState.COMPLETE,
    Outcome.FAILED: TrialState.FAIL,
    Outcome.RUNNING: TrialState.RUNNING,
}


def suggest(algorithm: str, problem: Problem) -> Parameters:
    """What the sampler says. What was tried, or breaks a constraint, has it asked again."""
    return first_untried(problem, _OptunaStudy(algorithm, problem).samples())


def seed_of(seed: int, number: int, draw: int = 0) -> int:
    """The seed of a sampler that is asked for a trial, for the time that it is asked."""
    luck = random.Random(f"{seed}/{number}/{draw}")  # noqa: S311 - guards nothing
    return luck.randrange(_LARGEST_SEED)


class _OptunaStudy:
    """The history as a study of Optuna."""

    def __init__(self, algorithm: str, problem: Problem) -> None:
        self._name = algorithm.removeprefix(PREFIX)
        self._problem = problem
        self._space = [one for one in problem.space if not one.constant]
        self._distributions = {one.name: _distribution_of(one) for one in self._space}
        costs = next((one.costs for one in problem.observations if one.costs), (0.0,))
        self._study = optuna.create_study(
            storage=optuna.storages.InMemoryStorage(),
            sampler=optuna.samplers.RandomSampler(seed=0),
            pruner=optuna.pruners.NopPruner(),
            directions=["minimize"] * len(costs),
        )
        if sampler_of(algorithm).replayed:
            self._replay_trials()
        else:
            self._study.add_trials(list(self._frozen_trials()))

    def samples(self) -> Iterator[Parameters]:
        """Samples for this trial, without end."""
        draw = 0
        while True:
            trial = self._ask(self._problem.number, draw)
            yield self._take(trial)
            self._study.tell(trial, state=TrialState.FAIL)
            draw += 1

    def _ask(self, number: int, draw: int = 0) -> Trial:
        self._study.sampler = self._new_sampler(number, draw)
        return self._study.ask()

    def _take(self, trial: Trial) -> Parameters:
        """The values of a trial, one parameter after another: conditions name those before."""
        found: dict[str, Any] = {}
        for parameter in self._problem.space:
            if not is_active(parameter, found):
                continue
            if parameter.constant:
                found[parameter.name] = parameter.value_at(0)
                continue
            drawn = _draw(trial, parameter.name, self._distributions[parameter.name])
            found[parameter.name] = _value_of(parameter, drawn)
        return found

    def _frozen_trials(self) -> Iterator[FrozenTrial]:
        for one in self._problem.observations:
            if one.outcome is Outcome.IGNORED:
                continue
            inside = self._numbers_of(one)
            yield create_trial(
                state=_STATES[one.outcome],
                params=inside,
                distributions={name: self._distributions[name] for name in inside},
                values=_values_of(one),
            )

    def _replay_trials(self) -> None:
        """Ask for each trial and tell its values again, so that the sampler writes its attributes.

        One sampler does it, as it remembers the space of the trials that it has seen. Only
        ``NSGAIIISampler`` has luck in its attributes, and so is made anew for each trial.
        """
        lucky = self._name == "NSGAIIISampler"
        self._study.sampler = self._new_sampler(0, 0)
        for number, one in enumerate(self._problem.trials):
            if one.outcome is Outcome.IGNORED:
                continue
            self._study.enqueue_trial(self._numbers_of(one))
            trial = self._ask(number) if lucky else self._study.ask()
            _ = trial.relative_params  # parameters that are given do not ask the sampler
            self._take(trial)
            if one.outcome is not Outcome.RUNNING:
                self._study.tell(trial, _values_of(one), state=_STATES[one.outcome])

    def _numbers_of(self, one: Observation) -> dict[str, Any]:
        """The parameters of a trial as Optuna has them."""
        return {
            parameter.name: _number_of(parameter, one.parameters[parameter.name])
            for parameter in self._space
            if parameter.name in one.parameters
        }

    def _new_sampler(self, number: int, draw: int) -> optuna.samplers.BaseSampler:
        seed = seed_of(self._problem.seed, number, draw)
        options = dict(self._problem.options)
        if self._name == "QMCSampler":
            # The seed is of the whole sequence. That of what it does not choose is the trial's own.
            options["independent_sampler"] = optuna.samplers.RandomSampler(seed=seed)
            options["warn_independent_sampling"] = False
            seed = self._problem.seed % _LARGEST_SEED
        if self._name == "CmaEsSampler":
            options["warn_independent_sampling"] = False
        sampler: optuna.samplers.BaseSampler = getattr(optuna.samplers, self._name)(
            seed=seed, **options
        )
        return sampler


def _values_of(one: Observation) -> list[float] | None:
    if one.outcome is not Outcome.DONE:
        return None
    return list(one.costs) or [0.0 if one.cost is None else one.cost]


def _draw(trial: Trial, name: str, distribution: BaseDistribution) -> Any:
    if isinstance(distribution, CategoricalDistribution):
        return trial.suggest_categorical(name, distribution.choices)
    if isinstance(distribution, IntDistribution):
        return trial.suggest_int(name, distribution.low, distribution.high, log=distribution.log)
    assert isinstance(distribution, FloatDistribution)
    return trial.suggest_float(name, distribution.low, distribution.high, log=distribution.log)


def _distribution_of(parameter: Parameter) -> BaseDistribution:
    """The distribution of a parameter. What has finitely many values is numbered, as Optuna takes
    1, 1.0 and true for the same value, and changes ends of a range that are no multiple of its step.
    """
    if parameter.values and not parameter.ordered:
        return CategoricalDistribution(tuple(range(parameter.size)))
    if _is_numbered(parameter):
        return IntDistribution(0, parameter.size - 1)
    if parameter.whole:
        return IntDistribution(round(parameter.low), round(parameter.high), log=True)
    if parameter.scale is Scale.REVERSE_LOG:
        return FloatDistribution(0.0, 1.0)
    return FloatDistribution(parameter.low, parameter.high, log=parameter.scale is Scale.LOG)


def _is_numbered(parameter: Parameter) -> bool:
    return bool(parameter.values) or (parameter.finite and parameter.scale is Scale.LINEAR)


def _number_of(parameter: Parameter, value: Any) -> Any:
    """A value as its distribution has it; one outside of the range is taken for the nearest."""
    if parameter.values:
        return min(int(parameter.share_of(value) * parameter.size), parameter.size - 1)
    if _is_numbered(parameter):
        return parameter.number_of(min(max(value, parameter.low), parameter.high))
    if parameter.scale is Scale.REVERSE_LOG:
        return parameter.share_of(value)
    inside = min(max(value, parameter.low), parameter.high)
    return round(inside) if parameter.whole else float(inside)


def _value_of(parameter: Parameter, drawn: Any) -> Any:
    if _is_numbered(parameter):
        return parameter.value_at(drawn)
    if parameter.scale is Scale.REVERSE_LOG:
        return parameter.at(drawn)
    return drawn
