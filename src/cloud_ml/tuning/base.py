"""The seam of algorithms: what one is asked, and what it answers.

An algorithm is a function of the ``Problem`` alone. It keeps nothing, so any server continues where
another one ended, and the same problem gives the same parameters.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from operator import attrgetter
from typing import Any

from cloud_ml.domain.records import find_changed_places
from cloud_ml.domain.studies.combinations import TooFewFound, combinations, is_finite
from cloud_ml.domain.studies.conditions import Condition, only_active
from cloud_ml.domain.studies.constraints import all_hold
from cloud_ml.domain.studies.named_trials import fits
from cloud_ml.domain.studies.ranking import costs_of
from cloud_ml.domain.studies.space import Parameter, Scale
from cloud_ml.domain.studies.spec import StudySpec, TrialState, TrialStatus
from cloud_ml.domain.studies.values import Parameters
from cloud_ml.tuning.feasible import draw_point, feasible_points


class Outcome(StrEnum):
    """How a trial counts for those that follow."""

    DONE = "done"
    FAILED = "failed"
    RUNNING = "running"
    IGNORED = "ignored"


@dataclass(frozen=True, kw_only=True)
class Observation:
    """A trial. ``cost`` is its value, so turned that less is better; only of one that is done. With
    several objectives it has ``costs`` instead, one of each.
    """

    parameters: Parameters
    outcome: Outcome
    cost: float | None = None
    costs: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What an algorithm is asked: the parameters of the trial ``number``.

    Attributes:
        space: The parameters.
        seed: Of the study. With ``number`` it decides all luck.
        number: The number of the trial.
        named: How many trials before the user has named, or are repeats.
        trials: The trials before, by their numbers.
        constraints: What holds between the parameters of each trial.
        changed: Whether trials were made for another space.
        prior: Trials of earlier studies, all of them done.
        options: Of the algorithm; only samplers of Optuna have some.
    """

    space: tuple[Parameter, ...]
    seed: int
    number: int
    named: int = 0
    trials: Sequence[Observation] = field(default=())
    constraints: tuple[str, ...] = ()
    changed: bool = False
    prior: tuple[Observation, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def several(self) -> bool:
        """Whether trials have costs of several objectives."""
        return self.objectives > 1

    @property
    def objectives(self) -> int:
        """How many objectives there are, as far as trials tell: 1 without a completed one."""
        return next((len(trial.costs) for trial in self.observations if trial.costs), 1)

    @property
    def observations(self) -> Sequence[Observation]:
        """The trials of earlier studies, and those of this one."""
        return (*self.prior, *self.trials)

    def of(self, outcome: Outcome) -> list[Observation]:
        """The trials with that outcome, also those of earlier studies."""
        return [trial for trial in self.observations if trial.outcome is outcome]


IMPORTANCE = "importance"
"""What a tuner is asked for in the place of an algorithm, to say how much each parameter matters."""
Algorithm = Callable[[Problem], Parameters]

_OUTCOMES = {
    TrialState.RUNNING: Outcome.RUNNING,
    TrialState.COMPLETED: Outcome.DONE,
    TrialState.EARLY_STOPPED: Outcome.DONE,
    TrialState.FAILED: Outcome.FAILED,
    TrialState.INFEASIBLE: Outcome.FAILED,
}
_PARAMETERS_OF = attrgetter("parameters")
_DRAWS, _MOST_CANDIDATES = 20, 500
"""So often a trial is drawn that was tried already, or that breaks a constraint."""


def problem_of(
    spec: StudySpec,
    history: Sequence[TrialStatus],
    number: int,
    *,
    known: tuple[Sequence[TrialStatus], Sequence[Observation]] = ((), ()),
) -> Problem:
    """The problem of a study that has these trials. ``known`` are trials of it and what they were
    like: those that are the same are not made again.
    """
    before, observed = known
    trials: list[Observation] = list(observed)
    for place in find_changed_places(before, history):
        trials[place : place + 1] = [_observe_trial(spec, history[place])]
    return Problem(
        space=spec.space,
        seed=spec.seed or 0,
        number=number,
        named=len(spec.trials) + sum(one.queued or one.repeat_of is not None for one in history),
        trials=tuple(trials),
        constraints=spec.constraints,
        changed=spec.space_changed,
        prior=tuple(_observe_prior(spec)),
        options=spec.sampler_options,
    )


def _observe_prior(spec: StudySpec) -> Iterator[Observation]:
    """The trials of earlier studies that are of the space."""
    for one in spec.prior:
        if spec.space_changed and not fits(spec.space, spec.constraints, one.parameters):
            continue
        known: dict[str, Any] = {"costs": one.costs} if spec.further else {"cost": one.costs[0]}
        yield Observation(parameters=one.parameters, outcome=Outcome.DONE, **known)


def _observe_trial(spec: StudySpec, trial: TrialStatus) -> Observation:
    outcome = _OUTCOMES.get(trial.state, Outcome.IGNORED)
    if spec.space_changed and not fits(spec.space, spec.constraints, trial.parameters):
        outcome = Outcome.IGNORED
    costs = costs_of(spec, trial) if outcome is Outcome.DONE else None
    if outcome is Outcome.DONE and costs is None:
        outcome = Outcome.FAILED
    if costs is None:
        return Observation(parameters=trial.parameters, outcome=outcome)
    if spec.further:
        return Observation(parameters=trial.parameters, outcome=outcome, costs=costs)
    return Observation(parameters=trial.parameters, outcome=outcome, cost=costs[0])


def luck_of(problem: Problem, what: str = "") -> random.Random:
    """Chance that is the same each time for one trial."""
    return random.Random(f"{problem.seed}/{problem.number}{what}")  # noqa: S311 - guards nothing


def first_untried(problem: Problem, candidates: Iterable[Parameters]) -> Parameters:
    """The first that keeps the constraints and was not tried, of a few; else a combination that
    was not, if there is one. Parameters that are not active are left out.
    """
    last: Parameters | None = None
    points = (
        only_active(problem.space, values)
        for values in itertools.islice(candidates, _MOST_CANDIDATES)
    )
    kept = (point for point in points if all_hold(problem.constraints, point))
    for last in itertools.islice(kept, _DRAWS):
        if not _was_tried(problem, last):
            return last
    if (left := first_left(problem)) is not None:
        return left
    for other in itertools.islice(points_by_chance(problem, "/other"), _DRAWS):
        last = other if last is None else last
        if not _was_tried(problem, other):
            return other
    assert last is not None
    return last


def _was_tried(problem: Problem, point: Parameters) -> bool:
    return point in map(_PARAMETERS_OF, problem.observations)


def points_by_chance(problem: Problem, what: str = "") -> Iterator[Parameters]:
    """Points by chance that keep the constraints, without end."""
    luck = luck_of(problem, what)
    if not problem.constraints:
        while True:
            yield draw_point(problem.space, luck)
    known = [one.parameters for one in problem.observations if one.outcome is not Outcome.IGNORED]
    yield from feasible_points(problem.space, problem.constraints, known, luck)


def first_left(problem: Problem) -> Parameters | None:
    """The first combination of a finite space that was not tried; ``None`` if none is left."""
    if not is_finite(problem.space):
        return None
    tried = [trial.parameters for trial in problem.observations]
    found = combinations(problem.space, problem.constraints)
    points = itertools.islice(found, len(tried) + 1)
    with contextlib.suppress(TooFewFound):
        return next((point for point in points if point not in tried), None)
    return None


def document_of(problem: Problem) -> dict[str, Any]:
    """The problem as JSON has it."""
    return {
        "space": [asdict(parameter) for parameter in problem.space],
        "seed": problem.seed,
        "number": problem.number,
        "named": problem.named,
        "trials": [_document_of_trial(one) for one in problem.trials],
        "prior": [_document_of_trial(one) for one in problem.prior],
        "constraints": list(problem.constraints),
        "changed": problem.changed,
        "options": dict(problem.options),
    }


def _document_of_trial(one: Observation) -> list[Any]:
    return [one.outcome, one.cost, dict(one.parameters), list(one.costs)]


def _trial_from(document: Sequence[Any]) -> Observation:
    outcome, cost, given, costs = document
    return Observation(parameters=given, outcome=Outcome(outcome), cost=cost, costs=tuple(costs))


def problem_from(document: Mapping[str, Any]) -> Problem:
    """The problem of a document."""
    return Problem(
        space=tuple(_parameter_from(one) for one in document["space"]),
        seed=document["seed"],
        number=document["number"],
        named=document["named"],
        trials=tuple(map(_trial_from, document["trials"])),
        constraints=tuple(document["constraints"]),
        changed=document["changed"],
        prior=tuple(map(_trial_from, document["prior"])),
        options=document["options"],
    )


def _parameter_from(document: Mapping[str, Any]) -> Parameter:
    conditions = [Condition(one["name"], tuple(one["values"])) for one in document["active_if"]]
    changed = {
        "values": tuple(document["values"]),
        "scale": Scale(document["scale"]),
        "active_if": tuple(conditions),
    }
    return Parameter(**{**document, **changed})
