"""Several objectives: ranks, children, and the replay of a history."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cloud_ml.domain.studies.space import parse_space
from cloud_ml.models.studies.pareto import front_of
from cloud_ml.tuning import chance
from cloud_ml.tuning.base import Observation, Outcome, Problem, document_of, problem_from
from cloud_ml.tuning.known_studies import ReceivedStudies
from cloud_ml.tuning.numeric import nsga2
from cloud_ml.tuning.program import answer

_SPACE = parse_space(
    {
        "x": {"min": 0, "max": 1},
        "o": ["a", "b", "c"],
        "n": {"min": 1, "max": 4, "type": "int"},
        "y": {"min": 0.001, "max": 1, "scale": "log", "active_if": {"o": "a"}},
        "fixed": {"value": 3},
    }
)


def _costs(at: dict[str, Any]) -> tuple[float, ...]:
    return at["x"] + at["n"] + at.get("y", 2), (1 - at["x"]) ** 2 + "abc".index(at["o"])


def _after(count: int, suggest: Any) -> Problem:
    problem = Problem(space=_SPACE, seed=7, number=0)
    for number in range(count):
        problem = Problem(space=_SPACE, seed=7, number=number, trials=problem.trials)
        made = dict(suggest(problem))
        one = Observation(parameters=made, outcome=Outcome.DONE, costs=_costs(made))
        problem = Problem(space=_SPACE, seed=7, number=number + 1, trials=(*problem.trials, one))
    return problem


def test_the_first_trials_are_those_of_the_front_and_its_ends_come_first() -> None:
    costs = np.array([[3, 3], [0, 4], [4, 0], [1, 2], [2, 1], [5, 5]], dtype=float)
    order = nsga2.best_first(costs)
    assert set(order[:4].tolist()) == set(front_of([tuple(row) for row in costs.tolist()]))
    assert set(order[:2].tolist()) == {1, 2}
    assert order[-1] == 5


@pytest.mark.parametrize("algorithm", ["nsga2", "gp", "ehvi"])
def test_the_same_history_suggests_the_same_and_active_parameters_alone(algorithm: str) -> None:
    def suggest(problem: Problem) -> Any:
        if problem.number < 8:
            return chance.suggest(problem)
        request = {"algorithm": algorithm, "problem": document_of(problem)}
        found = answer(request, ReceivedStudies())["parameters"]
        assert found == answer(request, ReceivedStudies())["parameters"]
        return found

    problem = _after(24, suggest)
    assert problem_from(document_of(problem)) == problem
    for trial in problem.trials:
        assert ("y" in trial.parameters) == (trial.parameters["o"] == "a")
        assert trial.parameters["fixed"] == 3
    assert len({str(trial.parameters) for trial in problem.trials}) == 24


def test_children_that_break_the_constraints_are_given_up() -> None:
    space = parse_space({name: {"min": 0, "max": 10**6, "type": "int"} for name in "ab"})
    constraints = ("a == b", "a > 1000", "a < 999000")
    trials = [
        Observation(parameters={"a": n, "b": n}, outcome=Outcome.DONE, cost=float(n))
        for n in range(500_000, 500_009)
    ]
    problem = Problem(space=space, seed=1, number=9, constraints=constraints, trials=trials)
    found = nsga2.suggest(problem)
    assert found["a"] == found["b"]
