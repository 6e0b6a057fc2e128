"""Samplers of Optuna as algorithms: one that is made anew for each trial says what one says that
goes on, with the attributes that it keeps.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import optuna
import pytest

from cloud_ml.domain.studies.named_trials import check_trial
from cloud_ml.domain.studies.samplers import PREFIX, SAMPLERS, sampler_of
from cloud_ml.domain.studies.space import parse_space
from cloud_ml.tuning.base import (
    Observation,
    Outcome,
    Problem,
    document_of,
    first_untried,
    problem_from,
)
from cloud_ml.tuning.known_studies import ReceivedStudies
from cloud_ml.tuning.optuna_program import answer
from cloud_ml.tuning.optuna_samplers import seed_of, suggest
from cloud_ml.tuning.tuner import Tuner

_ALL = [PREFIX + name for name in SAMPLERS]
_OPTIONS: Mapping[str, dict[str, Any]] = {
    "TPESampler": {"n_startup_trials": 4, "group": True},
    "QMCSampler": {"scramble": True},
    "NSGAIISampler": {"population_size": 4},
    "NSGAIIISampler": {"population_size": 4, "dividing_parameter": 2},
    "CmaEsSampler": {"popsize": 4},
}
_NUMBERS = {
    "lr": {"min": 1e-5, "max": 1.0, "scale": "log"},
    "momentum": {"min": 0.5, "max": 0.999, "scale": "reverse-log"},
    "x": {"min": -5.0, "max": 5.0},
    "width": {"min": 1, "max": 64, "type": "int", "scale": "log"},
    "layers": {"min": 1, "max": 8, "type": "int"},
    "odd": {"min": 1, "max": 10, "type": "int", "step": 2},
    "rate": {"min": 0.0, "max": 0.55, "step": 0.1},
    "batch": [16, 32, 64],
    "epochs": {"value": 3},
}
_NAMES = {"optimizer": ["adam", "sgd", "lion"], "mixed": [1, True, "1"]}
_CONDITIONAL = {
    "kernel": ["rbf", "linear"],
    "gamma": {"min": 1e-4, "max": 10.0, "scale": "log", "active_if": {"kernel": "rbf"}},
    "c": {"min": 0.0, "max": 1.0},
}
_PLAIN = {
    "x": {"min": -5.0, "max": 5.0},
    "lr": {"min": 1e-5, "max": 1.0, "scale": "log"},
    "width": {"min": 1, "max": 64, "type": "int", "scale": "log"},
}


def _space_of(algorithm: str) -> dict[str, Any]:
    return {**_NUMBERS, **(_NAMES if sampler_of(algorithm).unordered else {})}


def _cost(parameters: Mapping[str, Any]) -> float:
    worse = {"adam": 0.0, "sgd": 0.5}.get(parameters.get("optimizer", "adam"), 1.0)
    return float((parameters["x"] - 1) ** 2 + worse + parameters.get("layers", 0) / 8)


def _problem(
    algorithm: str, space: Mapping[str, Any], trials: list[Observation], **more: Any
) -> Problem:
    return Problem(
        space=parse_space(space), seed=3, number=len(trials), trials=tuple(trials),
        options=_OPTIONS.get(algorithm.removeprefix(PREFIX), {}), **more,
    )  # fmt: skip


def _done(parameters: Mapping[str, Any]) -> Observation:
    return Observation(parameters=dict(parameters), outcome=Outcome.DONE, cost=_cost(parameters))


def _search(algorithm: str, space: Mapping[str, Any], count: int) -> list[Observation]:
    trials: list[Observation] = []
    for _ in range(count):
        trials.append(_done(suggest(algorithm, _problem(algorithm, space, trials))))
    return trials


def _sampler(algorithm: str, number: int, draw: int) -> Any:
    name, seed = algorithm.removeprefix(PREFIX), seed_of(3, number, draw)
    options = dict(_OPTIONS.get(name, {}))
    if name == "QMCSampler":
        options["independent_sampler"] = optuna.samplers.RandomSampler(seed=seed)
        seed = 3
    return getattr(optuna.samplers, name)(seed=seed, **options)


def _draws(
    study: optuna.Study, algorithm: str, number: int, trials: list[optuna.Trial]
) -> Iterator[dict[str, Any]]:
    for draw in itertools.count():
        study.sampler = _sampler(algorithm, number, draw)
        trial = study.ask()
        trial.suggest_float("x", -5, 5)
        trial.suggest_float("lr", 1e-5, 1, log=True)
        trial.suggest_int("width", 1, 64, log=True)
        trials.append(trial)
        yield trial.params


@pytest.fixture(autouse=True)
def _quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("algorithm", _ALL)
def test_one_that_is_made_anew_says_what_a_study_of_optunas_says(algorithm: str) -> None:
    ours = [one.parameters for one in _search(algorithm, _PLAIN, 14)]
    study = optuna.create_study()
    theirs: list[Any] = []
    for number in range(14):
        drawn_trials: list[optuna.Trial] = []
        problem = _problem(algorithm, _PLAIN, [_done(one) for one in theirs])
        theirs.append(first_untried(problem, _draws(study, algorithm, number, drawn_trials)))
        for trial in drawn_trials[:-1]:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        study.tell(drawn_trials[-1], _cost(drawn_trials[-1].params))
    assert ours == theirs


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("algorithm", _ALL)
def test_all_kinds_of_parameters_and_outcomes(algorithm: str) -> None:
    space = _space_of(algorithm)
    trials = _search(algorithm, space, 6)
    trials[1] = Observation(parameters=trials[1].parameters, outcome=Outcome.FAILED)
    trials[2] = Observation(parameters={"x": 99.0, "gone": 1}, outcome=Outcome.IGNORED)
    trials[5] = Observation(parameters=trials[5].parameters, outcome=Outcome.RUNNING)
    for _ in range(4):
        problem = _problem(algorithm, space, trials, constraints=("layers <= odd",))
        found = suggest(algorithm, problem)
        check_trial(problem.space, found, "trial", problem.constraints)
        assert found not in [one.parameters for one in trials]
        assert suggest(algorithm, problem_from(document_of(problem))) == found
        trials.append(_done(found))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "algorithm", [one for one in _ALL if sampler_of(one).conditional and sampler_of(one).several]
)
def test_conditions_and_several_objectives(algorithm: str) -> None:
    trials: list[Observation] = []
    for _ in range(12):
        problem = _problem(algorithm, _CONDITIONAL, trials)
        found = check_trial(problem.space, suggest(algorithm, problem), "trial")
        costs = (found["c"], 1 - found["c"] + found.get("gamma", 0))
        trials.append(Observation(parameters=found, outcome=Outcome.DONE, costs=costs))
    assert {"gamma" in one.parameters for one in trials} == {True, False}


@pytest.mark.filterwarnings("ignore")
def test_trials_that_run_are_liars_where_the_sampler_has_that() -> None:
    known = _search("optuna:TPESampler", _PLAIN, 10)
    first = suggest("optuna:TPESampler", _problem("optuna:TPESampler", _PLAIN, known))
    running = [
        Observation(parameters={**first, "x": first["x"] + step / 100}, outcome=Outcome.RUNNING)
        for step in range(1, 10)
    ]
    problem = _problem("optuna:TPESampler", _PLAIN, known + running)
    frank = dataclasses.replace(problem, options={**problem.options, "constant_liar": False})
    with_liars, without = (suggest("optuna:TPESampler", one) for one in (problem, frank))
    assert with_liars != without


@pytest.mark.filterwarnings("ignore")
def test_trials_of_earlier_studies_are_learned_from() -> None:
    prior = tuple(_done({"x": n / 10 - 5, "lr": 0.1, "width": 8}) for n in range(100))

    def mean_cost(prior: tuple[Observation, ...]) -> float:
        problem = _problem("optuna:TPESampler", _PLAIN, [], prior=prior)
        problems = [dataclasses.replace(problem, seed=seed) for seed in range(10)]
        return sum(_cost(suggest("optuna:TPESampler", one)) for one in problems) / 10

    assert mean_cost(prior) < mean_cost(())


@pytest.fixture
async def tuner() -> AsyncIterator[Tuner]:
    tuner = Tuner(user=65_534 if os.geteuid() == 0 else 0, answer_s=60)
    yield tuner
    await tuner.close()


@pytest.mark.anyio
@pytest.mark.filterwarnings("ignore")
async def test_the_process_has_no_rights_and_one_that_was_killed_says_the_same(
    tuner: Tuner,
) -> None:
    trials = _search("optuna:TPESampler", _PLAIN, 6)
    requests = [(one, _problem(one, _PLAIN, trials)) for one in _ALL]
    first = [await tuner.suggest(name, problem, study="s") for name, problem in requests]
    assert first == [suggest(name, problem) for name, problem in requests]
    (killed,) = tuner.pids
    assert "NoNewPrivs:\t1" in Path(f"/proc/{killed}/status").read_text()
    os.kill(killed, signal.SIGKILL)
    assert [await tuner.suggest(name, problem, study="s") for name, problem in requests] == first
    assert await tuner.suggest("gp", requests[0][1])  # in a process that does not load Optuna
    assert len(tuner.pids) == 2


def test_a_request_that_cannot_be_answered_has_a_reason() -> None:
    request = {"algorithm": "optuna:None", "problem": {}}
    assert answer(request, ReceivedStudies())["error"].startswith("KeyError")
