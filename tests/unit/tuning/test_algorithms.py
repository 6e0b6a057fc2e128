"""Algorithms: the same problem has the same answer, all answers are of the space, and those that
learn do better than chance.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime
from scipy.stats import norm, qmc

from cloud_ml.domain.studies.named_trials import check_trial
from cloud_ml.domain.studies.samplers import SAMPLERS
from cloud_ml.domain.studies.space import Parameter, parse_space
from cloud_ml.domain.studies.spec import Goal, StudySpec, TrialState, TrialStatus
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.models.studies.study import ALGORITHMS
from cloud_ml.tuning.algorithms import (
    LEARNING_FROM_OTHERS,
    LIGHT,
    NAMES,
    advice,
    choose_algorithm,
    resolve_name,
)
from cloud_ml.tuning.base import (
    Observation,
    Outcome,
    Problem,
    document_of,
    problem_from,
    problem_of,
)
from cloud_ml.tuning.numeric import cma, ehvi, gp, nsga2, tpe
from cloud_ml.tuning.numeric.process import GaussianProcess, Shape, fit_shape, log_h
from cloud_ml.tuning.numeric.warping import warp
from cloud_ml.tuning.sobol import sobol_point

_ALL = {**LIGHT, "gp": gp.suggest, "tpe": tpe.suggest, "cma-es": cma.suggest,
        "nsga2": nsga2.suggest, "ehvi": ehvi.suggest}  # fmt: skip
_MIXED = {
    "lr": {"min": 1e-5, "max": 1.0, "scale": "log"},
    "layers": {"min": 1, "max": 8, "type": "int"},
    "rate": {"min": 0.0, "max": 0.5, "step": 0.1},
    "optimizer": ["adam", "sgd", "lion"],
    "batch": [16, 32, 64],
    "cache": [True, False],
}

_CONDITIONAL = {
    "model": ["svm", "trees", "network"],
    "c": {"min": 1e-3, "max": 1e3, "scale": "log", "active_if": {"model": "svm"}},
    "kernel": {"values": ["rbf", "linear"], "active_if": {"model": "svm"}},
    "gamma": {"min": 1e-4, "max": 10.0, "scale": "log", "active_if": {"kernel": "rbf"}},
    "layers": {"min": 1, "max": 3, "type": "int", "active_if": {"model": "network"}},
    "width2": {"min": 8, "max": 256, "type": "int", "active_if": {"layers": [2, 3]}},
    "epochs": {"value": 3},
}


def test_a_shell_completes_the_algorithms_that_there_are() -> None:
    assert [*NAMES, *(f"optuna:{name}" for name in SAMPLERS)] == list(ALGORITHMS)


def _problem(
    space: Mapping[str, Any],
    trials: list[Observation],
    seed: int = 3,
    constraints: tuple[str, ...] = (),
) -> Problem:
    return Problem(
        space=parse_space(space),
        seed=seed,
        number=len(trials),
        trials=tuple(trials),
        constraints=constraints,
    )


def _search(
    algorithm: str,
    space: Mapping[str, Any],
    cost: Callable[[Mapping[str, Any]], float],
    count: int,
    seed: int = 3,
    constraints: tuple[str, ...] = (),
) -> list[Observation]:
    trials: list[Observation] = []
    for _ in range(count):
        problem = _problem(space, trials, seed, constraints)
        parameters = _ALL[choose_algorithm(algorithm, problem)](problem)
        done = Observation(parameters=parameters, outcome=Outcome.DONE, cost=cost(parameters))
        trials.append(done)
    return trials


def _belongs(parameter: Parameter, value: Any) -> bool:
    if parameter.values:
        return value in parameter.values
    fits = parameter.low <= value <= parameter.high
    return fits and isinstance(value, int) == parameter.whole


def _mixed_cost(parameters: Mapping[str, Any]) -> float:
    worse = {"adam": 0.0, "sgd": 0.5, "lion": 1.0}[parameters["optimizer"]]
    rate = (math.log10(parameters["lr"]) + 2) ** 2
    return float(rate + worse + 0.1 * abs(parameters["layers"] - 5) + parameters["rate"])


@pytest.mark.parametrize("algorithm", ["random", "qmc", "tpe", "gp", "cma-es", "auto"])
def test_what_is_suggested_is_of_the_space_and_the_same_each_time(algorithm: str) -> None:
    trials = _search(algorithm, _MIXED, _mixed_cost, 30)
    for trial in trials:
        for parameter in parse_space(_MIXED):
            assert _belongs(parameter, trial.parameters[parameter.name])
    assert trials == _search(algorithm, _MIXED, _mixed_cost, 30)
    other = _search(algorithm, _MIXED, _mixed_cost, 5, seed=4)
    assert [one.parameters for one in other] != [one.parameters for one in trials[:5]]


@pytest.mark.parametrize("algorithm", LEARNING_FROM_OTHERS)
def test_trials_of_an_earlier_study_stand_in_for_the_even_points(algorithm: str) -> None:
    prior = tuple(_search("gp" if algorithm == "auto" else algorithm, _MIXED, _mixed_cost, 40))
    problem = dataclasses.replace(_problem(_MIXED, []), prior=prior)
    assert choose_algorithm(algorithm, problem) == ("gp" if algorithm == "auto" else algorithm)
    assert problem_from(json.loads(json.dumps(document_of(problem)))) == problem
    found = [
        _ALL[choose_algorithm(algorithm, problem)](dataclasses.replace(problem, seed=n))
        for n in range(8)
    ]
    assert all(each not in [one.parameters for one in prior] for each in found)
    first = [one.cost or 0.0 for one in prior[:10]]  # even points
    assert sum(map(_mixed_cost, found)) / len(found) < sum(first) / len(first)


def _conditional_cost(parameters: Mapping[str, Any]) -> float:
    if parameters["model"] == "trees":
        return 3.0
    if parameters["model"] == "network":
        return 2.0 + abs(parameters.get("width2", 8) - 100) / 100 - 0.1 * parameters["layers"]
    worse = 1.0 if parameters["kernel"] == "linear" else abs(math.log10(parameters["gamma"]) + 2)
    return float(abs(math.log10(parameters["c"]) - 1) + worse)


@pytest.mark.parametrize("algorithm", ["random", "qmc", "tpe", "gp", "auto"])
def test_a_trial_has_the_parameters_that_are_active(algorithm: str) -> None:
    space = parse_space(_CONDITIONAL)
    trials = _search(algorithm, _CONDITIONAL, _conditional_cost, 30)
    for trial in trials:
        assert check_trial(space, trial.parameters, "trial") == trial.parameters
        assert trial.parameters["epochs"] == 3
    assert trials == _search(algorithm, _CONDITIONAL, _conditional_cost, 30)
    problem = _problem(_CONDITIONAL, trials)
    assert problem_from(json.loads(json.dumps(document_of(problem)))) == problem


@pytest.mark.parametrize("algorithm", ["random", "qmc", "tpe", "gp"])
def test_distinct_combinations_of_conditions_are_all_tried(algorithm: str) -> None:
    space = {"a": [1, 2, 3], "b": {"values": ["x", "y", "z"], "active_if": {"a": [2, 3]}}}
    trials = _search(algorithm, space, lambda one: one["a"], 7)
    assert len({tuple(one.parameters.items()) for one in trials}) == 7


_CONSTRAINTS: Sequence[tuple[Mapping[str, Any], tuple[str, ...]]] = [
    (_MIXED, ("layers * batch <= 64", "rate < 0.1 * layers")),
    ({"a": {"min": 0, "max": 1}, "b": {"min": 0, "max": 1}}, ("b < a < b + 0.001",)),
    ({"a": {"min": 1, "max": 99, "type": "int"}, "b": {"min": 1, "max": 99, "type": "int"}}, ("a + b == 100",)),
    (_CONDITIONAL, ("width2 >= 64 * layers", "c * gamma <= 1")),
]  # fmt: skip


@pytest.mark.parametrize("algorithm", ["random", "qmc", "tpe", "gp", "cma-es"])
@pytest.mark.parametrize(("space", "constraints"), _CONSTRAINTS)
def test_what_breaks_a_constraint_is_never_suggested(
    algorithm: str, space: Mapping[str, Any], constraints: tuple[str, ...]
) -> None:
    if algorithm == "cma-es" and space is _CONDITIONAL:
        pytest.skip("refused where a study is taken")

    def cost(parameters: Mapping[str, Any]) -> float:
        return sum(value for value in parameters.values() if isinstance(value, float))

    parsed = parse_space(space)
    trials = _search(algorithm, space, cost, 20, constraints=constraints)
    for trial in trials:
        assert check_trial(parsed, trial.parameters, "trial", constraints)
    assert len({tuple(one.parameters.items()) for one in trials}) == 20
    assert trials == _search(algorithm, space, cost, 20, constraints=constraints)


@pytest.mark.parametrize("algorithm", ["tpe", "gp"])
def test_an_optimum_at_the_border_of_what_is_allowed_is_found(algorithm: str) -> None:
    space = {"a": {"min": 0.0, "max": 1.0}, "b": {"min": 0.0, "max": 1.0}}

    def best(name: str, seed: int) -> float:
        def cost(one: Mapping[str, Any]) -> float:
            return float((one["a"] - 0.9) ** 2 + (one["b"] - 0.9) ** 2)

        found = _search(name, space, cost, 40, seed, ("a + b <= 1",))
        return min(one.cost or 0.0 for one in found) - 0.32

    learned = sum(best(algorithm, seed) for seed in range(2))
    assert learned < 0.5 * sum(best("random", seed) for seed in range(2))


@pytest.mark.parametrize("algorithm", ["tpe", "gp"])
def test_conditions_are_learned(algorithm: str) -> None:
    def best(name: str, seed: int) -> float:
        costs = [one.cost for one in _search(name, _CONDITIONAL, _conditional_cost, 40, seed)]
        return min(cost for cost in costs if cost is not None)

    learned = sum(best(algorithm, seed) for seed in range(2))
    assert learned < 0.6 * sum(best("random", seed) for seed in range(2))


@pytest.mark.parametrize("algorithm", ["tpe", "gp", "auto"])
def test_an_algorithm_that_learns_does_better_than_chance(algorithm: str) -> None:
    def best(name: str, seed: int) -> float:
        costs = [one.cost for one in _search(name, _MIXED, _mixed_cost, 40, seed)]
        return min(cost for cost in costs if cost is not None)

    learned = sum(best(algorithm, seed) for seed in range(4))
    assert learned < 0.5 * sum(best("random", seed) for seed in range(4))


@pytest.mark.parametrize("algorithm", ["random", "qmc", "tpe", "gp", "cma-es", "auto"])
def test_few_combinations_are_all_tried_and_none_twice(algorithm: str) -> None:
    space = {"a": [1, 2, 3], "b": ["x", "y"], "c": {"min": 1, "max": 3, "type": "int"}}
    trials = _search(algorithm, space, lambda one: one["a"] + one["c"], 18)
    assert len({tuple(one.parameters.items()) for one in trials}) == 18


@pytest.mark.parametrize("algorithm", ["tpe", "gp", "cma-es"])
@pytest.mark.parametrize(
    "costs",
    [
        [1.0] * 20,
        [1e300, *range(19)],
        [-1e300] * 20,
        [-1e300, *range(19)],
        [1e308, -1e308] * 10,
        [-1e308] * 19 + [1.0],
        [1e-300] * 19 + [0.0],
        [*range(2)] * 10,
    ],
)
@pytest.mark.filterwarnings("error")
def test_odd_costs_are_no_trouble(algorithm: str, costs: list[float]) -> None:
    space = {"x": {"min": 0.0, "max": 1.0}}
    trials = [
        Observation(parameters={"x": n / 20}, outcome=Outcome.DONE, cost=float(cost))
        for n, cost in enumerate(costs)
    ]
    trials += [Observation(parameters={"x": 0.5}, outcome=one) for one in Outcome][1:]
    assert 0 <= float(_ALL[algorithm](_problem(space, trials))["x"]) <= 1


def test_trials_that_run_keep_others_away() -> None:
    space = {"x": {"min": 0.0, "max": 1.0}}
    done = _search("gp", space, lambda one: (one["x"] - 0.3) ** 2, 12)
    trials = list(done)
    for _ in range(4):
        running = gp.suggest(_problem(space, trials))
        trials.append(Observation(parameters=running, outcome=Outcome.RUNNING))
    points = sorted(float(one.parameters["x"]) for one in trials[12:])
    assert all(right - left > 1e-4 for left, right in itertools.pairwise(points))


def test_a_value_that_noise_made_good_draws_no_search() -> None:
    space = {"x": {"min": 0.0, "max": 1.0}, "y": {"min": 0.0, "max": 1.0}}
    near = 0
    for seed in range(4):
        luck, trials = random.Random(seed), []
        for _ in range(40):
            at = {"x": luck.random(), "y": luck.random()}
            cost = (at["x"] - 0.5) ** 2 + (at["y"] - 0.5) ** 2 + luck.gauss(0, 0.05)
            trials.append(Observation(parameters=at, outcome=Outcome.DONE, cost=cost))
        lucky = {"x": 0.95, "y": 0.9}
        trials.append(Observation(parameters=lucky, outcome=Outcome.DONE, cost=-0.4))
        found = gp.suggest(_problem(space, trials, seed))
        near += math.dist([float(found["x"]), float(found["y"])], [0.5, 0.5]) < 0.2
    assert near >= 3


def test_values_of_a_users_own_are_understood() -> None:
    trials = [
        Observation(parameters={"x": -5.0, "o": "none"}, outcome=Outcome.DONE, cost=float(n))
        for n in range(12)
    ]
    space = {"x": {"min": 0.0, "max": 1.0}, "o": ["a", "b"]}
    for algorithm in ("gp", "tpe", "cma-es"):
        assert _ALL[algorithm](_problem(space, trials))["o"] in ("a", "b")


def test_the_sequence_is_that_of_sobol() -> None:
    ours = np.array([sobol_point(number, 6, 3) for number in range(256)])
    assert qmc.discrepancy(ours) < 0.001
    for axis in range(6):  # each 256th of each axis has a point
        assert sorted(np.floor(ours[:, axis] * 256)) == list(range(256))


@pytest.mark.parametrize("noise", [-2.0, -9.0])
def test_the_gradient_of_the_improvement_is_right(noise: float) -> None:
    luck = np.random.default_rng(0)
    rows, costs = luck.random((20, 3)), luck.standard_normal(20)
    unordered = np.array([False, False, True])
    rows[:, 2] = np.floor(rows[:, 2] * 3)
    model = GaussianProcess(rows, costs, unordered, Shape((2.0, 3.0, 0.0), 0.1, noise))
    point = np.array([0.35, 0.6, 1.0])
    _, slope = model.improvement_and_slope(point[None, :], -1.5)

    def value(free: Any) -> float:
        return float(model.improvement(np.append(free, 1.0)[None, :], -1.5)[0])

    assert slope[0, :2] == pytest.approx(approx_fprime(point[:2], value, 1e-7), rel=1e-3)
    assert slope[0, 2] == 0


def test_a_tiny_improvement_has_a_logarithm() -> None:
    z = np.array([-1e8, -1e3, -40.0, -5.0, -1.0, 0.0, 3.0])
    found = log_h(z)
    exact = np.log(norm.pdf(z[3:]) + z[3:] * norm.cdf(z[3:]))
    assert found[3:] == pytest.approx(exact, rel=1e-6)
    assert np.isfinite(found).all()
    assert (np.diff(found) > 0).all()


def test_lengths_are_those_of_the_data() -> None:
    luck = np.random.default_rng(1)
    rows = luck.random((60, 2))
    costs = warp(np.sin(9 * rows[:, 0]))
    shape = fit_shape(rows, costs, np.array([False, False]))
    assert shape.weights[0] > shape.weights[1] + 3, "the second column does not matter"


def test_a_valley_is_found_in_few_trials() -> None:
    """Searches asked for corners of the space while few trials made the model flat."""

    def rosenbrock(at: Mapping[str, Any]) -> float:
        pairs = itertools.pairwise(at.values())
        return sum(float(100 * (y - x * x) ** 2 + (1 - x) ** 2) for x, y in pairs)

    space = {name: {"min": -2.0, "max": 2.0} for name in "abcd"}
    found = [_search("gp", space, rosenbrock, 25, seed) for seed in (1, 3, 5)]
    assert sum(min(one.cost or 0.0 for one in trials) for trials in found) / 3 < 35


def test_lengths_are_fitted_again_when_trials_are_a_tenth_more() -> None:
    luck = np.random.default_rng(1)
    rows, ordered = luck.random((110, 2)), np.array([False, False])
    costs = np.exp(luck.random(110))
    shapes = [fit_shape(rows[:count], costs[:count], ordered) for count in (95, 102, 110)]
    assert shapes[0] == shapes[1] != shapes[2]


def test_tpe_leaves_a_value_of_a_list_that_was_good_by_chance() -> None:
    space = {"lr": {"min": 1e-5, "max": 1.0, "scale": "log"}, "optimizer": ["a", "b", "c", "d"],
             "depth": {"min": 1, "max": 12, "type": "int"}, "dropout": {"min": 0.0, "max": 0.8}}  # fmt: skip

    def cost(at: Mapping[str, Any]) -> float:
        worse = {"a": 0.0, "b": 0.3, "c": 0.6, "d": 1.0}[at["optimizer"]]
        rate = -2.5 if at["optimizer"] == "a" else -1.5
        off = (math.log10(at["lr"]) - rate) ** 2 + 2 * (at["dropout"] - 0.2) ** 2
        return float(off + worse + 0.02 * (at["depth"] - 5) ** 2)

    found = [_search("tpe", space, cost, 100, seed=seed) for seed in range(6)]
    ended_with = [min(trials, key=lambda one: one.cost or 0.0) for trials in found]
    assert [one.parameters["optimizer"] for one in ended_with].count("a") >= 5


@given(st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=30))
@settings(max_examples=50, deadline=None)
def test_warped_costs_keep_their_order(costs: list[float]) -> None:
    found = warp(np.array(costs))
    assert np.isfinite(found).all()
    order = np.argsort(costs, kind="stable")
    assert (np.diff(found[order]) >= -1e-9).all()


def test_a_problem_survives_json() -> None:
    trials = _search("random", _MIXED, _mixed_cost, 3)
    problem = _problem(_MIXED, trials)
    assert problem_from(document_of(problem)) == problem


@pytest.mark.parametrize(
    ("name", "ours"),
    [("TPESampler", "tpe"), ("multivariate-tpe", "tpe"), ("sobol", "qmc"), ("bayesianoptimization", "gp"),
     ("BayesOptSearch", "gp"), ("GridSampler", "grid"), ("CmaEsSampler", "cma-es"), ("qLogEHVI", "ehvi"),
     ("magic", "magic")],
)  # fmt: skip
def test_names_of_other_tuners_are_understood(name: str, ours: str) -> None:
    assert resolve_name(name) == ours


def test_a_generation_counts_when_it_has_ended_and_trials_at_a_time_differ() -> None:
    space = {"x": {"min": 0.0, "max": 1.0}, "y": {"min": 0.0, "max": 1.0}}
    trials = _search("cma-es", space, lambda one: (one["x"] - 0.3) ** 2 + one["y"], 120)
    spread = [abs(float(one.parameters["x"]) - 0.3) for one in trials]
    assert sum(spread[-12:]) < 0.2 * sum(spread[:12]), "it learns"
    running = [*trials[:-1], dataclasses.replace(trials[-1], outcome=Outcome.RUNNING, cost=None)]
    suggested = []
    for _ in range(3):
        suggested.append(cma.suggest(_problem(space, running)))
        running.append(Observation(parameters=suggested[-1], outcome=Outcome.RUNNING))
    assert len({tuple(one.items()) for one in suggested}) == 3
    failed = [dataclasses.replace(one, outcome=Outcome.FAILED, cost=None) for one in trials]
    assert cma.suggest(_problem(space, failed))


def _status(number: int, value: float, **parameters: Any) -> TrialStatus:
    return TrialStatus(
        number=number, parameters=parameters, state=TrialState.COMPLETED, value=value
    )


def test_trials_outside_of_a_changed_space_are_not_learned_from() -> None:
    spec = StudySpec(
        job=TrainJob("rates", "m", "u"),
        space=parse_space({"x": {"min": 0.0, "max": 1.0}, "o": ["a", "b"]}),
        metric="loss", goal=Goal.MINIMIZE, algorithm="gp", max_trials=9, parallel=1, max_failed=1,
        seed=1, constraints=("x < 0.9",), space_changed=True,
    )  # fmt: skip
    trials = [
        _status(0, 1.0, x=0.5, o="a"),
        _status(1, 1.0, x=2.0, o="a"),
        _status(2, 1.0, x=0.5, o="c"),
        _status(3, 1.0, x=0.5),
        _status(4, 1.0, x=0.5, o="b", y=1),
        _status(5, 1.0, x=0.95, o="b"),
        _status(6, 1.0, x=0.0, o="b"),
        _status(7, 1.0, x="much", o="b"),
    ]
    problem = problem_of(spec, trials, 8)
    fitting = [n for n, one in enumerate(problem.trials) if one.outcome is Outcome.DONE]
    assert fitting == [0, 6]
    assert choose_algorithm("gp", problem) == "qmc", "it begins again with even points"
    assert problem_from(json.loads(json.dumps(document_of(problem)))) == problem
    for suggest in _ALL.values():
        if suggest is not _ALL["grid"]:  # x has endlessly many values
            assert check_trial(spec.space, suggest(problem), "trial", spec.constraints)
    same = dataclasses.replace(spec, space_changed=False, constraints=())
    assert problem_of(same, trials[:2], 2).of(Outcome.IGNORED) == []


def test_what_is_no_algorithm_is_answered_with_what_to_write() -> None:
    assert "stopper: hyperband" in advice("hyperband")
    assert advice("ehvo").endswith("; did you mean ehvi?")
    assert advice("nsga-3").endswith("; did you mean nsga2?")
    assert advice("magic") == ", ".join(sorted(NAMES) + [f"optuna:{name}" for name in SAMPLERS])
    assert advice("optuna:Magic").endswith("Optuna's client: cloudml hp proxy")
    assert advice("Optuna:GP").endswith("GPSampler needs PyTorch; write algorithm: gp")
