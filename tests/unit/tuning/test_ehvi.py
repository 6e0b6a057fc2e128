"""Expected hypervolume improvement: boxes, values and gradients, and searches for fronts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from cloud_ml.domain.studies.space import parse_space
from cloud_ml.models.studies.pareto import hypervolume
from cloud_ml.tuning.algorithms import LIGHT, choose_algorithm
from cloud_ml.tuning.base import Observation, Outcome, Problem, document_of
from cloud_ml.tuning.known_studies import ReceivedStudies
from cloud_ml.tuning.numeric import ehvi, nsga2
from cloud_ml.tuning.numeric.axes import Array
from cloud_ml.tuning.numeric.boxes import Sides, sides_of
from cloud_ml.tuning.numeric.process import Shape
from cloud_ml.tuning.program import answer

Costs = Callable[[Mapping[str, Any]], tuple[float, ...]]
_PLANE = {name: {"min": 0.0, "max": 1.0} for name in "abc"}


def _ends(sides: list[Sides]) -> tuple[Array, Array]:
    """The lower and the upper corners of boxes."""
    low = [one.edges[one.lower[one.of_box]] for one in sides]
    return np.array(low).T, np.array([one.edges[one.upper[one.of_box]] for one in sides]).T


def _gain(boxes: tuple[Array, Array], costs: Array) -> Array:
    """How much of all boxes lies above each of these costs."""
    low, high = boxes
    lengths = high - np.maximum(low, costs[:, None, :])
    found: Array = np.maximum(lengths, 0).prod(axis=2).sum(axis=1)
    return found


@pytest.mark.parametrize("objectives", [1, 2, 3, 4])
@pytest.mark.parametrize("points", [1, 2, 6, 25])
def test_boxes_have_the_volume_that_a_point_adds(objectives: int, points: int) -> None:
    luck, reference = np.random.default_rng(points), (1.1,) * objectives
    costs = np.round(luck.random((points, objectives)), 1)  # some are equal in one objective
    front = costs[nsga2.first_front(costs)]
    known = [tuple(one) for one in front.tolist()]
    boxes = _ends(sides_of(front, np.array(reference)))
    for new in luck.random((30, objectives)) * 1.3 - 0.1:
        before, after = hypervolume(known, reference), hypervolume([*known, tuple(new)], reference)
        assert before is not None
        assert after is not None
        assert _gain(boxes, new[None])[0] == pytest.approx(after - before, abs=1e-9)


def _model(objectives: int, noise: float) -> ehvi._ExpectedGain:
    luck = np.random.default_rng(objectives)
    rows = luck.random((20, 3))
    rows[:, 2] = np.floor(rows[:, 2] * 3)
    trials = ehvi._Trials(rows, rows[:0], np.array([False, False, True]))
    costs = luck.standard_normal((20, objectives))
    return ehvi._ExpectedGain(trials, costs, [Shape((2.0, 3.0, 0.0), 0.1, noise)] * objectives)


@pytest.mark.parametrize("objectives", [2, 3, 4])
def test_the_expected_gain_is_the_mean_of_what_samples_gain(objectives: int) -> None:
    model, luck = _model(objectives, -6.0), np.random.default_rng(0)
    rows = luck.random((200, 3))
    row = rows[[np.argmax(model.value(rows))]]
    predicted = [each.predict(row) for each in model._models]
    mean, deviation = (np.array(one)[:, 0] for one in zip(*predicted, strict=True))
    samples = mean + deviation * luck.standard_normal((200_000, objectives))
    gained = _gain(_ends(model._sides), samples)
    error = float(gained.std()) / math.sqrt(len(gained))
    assert gained.mean() > 10 * error, "samples tell something"
    assert math.exp(model.value(row)[0]) == pytest.approx(float(gained.mean()), abs=5 * error)


@pytest.mark.parametrize("objectives", [1, 2, 3, 4])
@pytest.mark.parametrize("noise", [-2.0, -9.0])
def test_the_gradient_of_the_expected_gain_is_right(objectives: int, noise: float) -> None:
    model, point = _model(objectives, noise), np.array([0.35, 0.6, 1.0])
    found, slope = model.value_and_slope(point[None])
    assert found == pytest.approx(model.value(point[None]))

    def value(free: Any) -> float:
        return float(model.value(np.append(free, 1.0)[None])[0])

    assert slope[0, :2] == pytest.approx(approx_fprime(point[:2], value, 1e-7), rel=1e-3, abs=1e-3)
    assert slope[0, 2] == 0


def test_a_gain_that_is_next_to_nothing_has_a_logarithm_and_a_gradient() -> None:
    trials = ehvi._Trials(np.linspace(0, 1, 12)[:, None], np.empty((0, 1)), np.array([False]))
    costs = np.column_stack([trials.ended[:, 0], 1 + trials.ended[:, 0]])
    model = ehvi._ExpectedGain(trials, costs, [Shape((-4.0,), 0.0, -13.0)] * 2)
    rows = np.linspace(0.3, 1, 50)[:, None]
    found, slope = model.value_and_slope(rows)
    assert found.max() < -1000
    assert np.isfinite(found).all()
    assert np.isfinite(slope).all()


def _suggest(algorithm: str, problem: Problem) -> Mapping[str, Any]:
    name = choose_algorithm(algorithm, problem)
    if name in LIGHT:
        return LIGHT[name](problem)
    request = {"algorithm": name, "problem": document_of(problem)}
    found: Mapping[str, Any] = answer(request, ReceivedStudies())["parameters"]
    return found


def _search(
    algorithm: str, space: Mapping[str, Any], costs: Costs, count: int, seed: int = 1, **more: Any
) -> list[Observation]:
    trials: list[Observation] = []
    parsed = parse_space(space)
    for number in range(count):
        problem = Problem(space=parsed, seed=seed, number=number, trials=tuple(trials), **more)
        made = _suggest(algorithm, problem)
        trials.append(Observation(parameters=made, outcome=Outcome.DONE, costs=costs(made)))
    return trials


def _volume(trials: list[Observation], reference: tuple[float, ...]) -> float:
    return hypervolume([one.costs for one in trials], reference) or 0.0


def _zdt2(at: Mapping[str, Any]) -> tuple[float, float]:
    others = 1 + 9 * sum(list(at.values())[1:]) / (len(at) - 1)
    return at["a"], others * (1 - (at["a"] / others) ** 2)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_corner_that_dominates_all_holds_up_no_search(seed: int) -> None:
    """With a reference just beyond the front, the rest of the front was worth nothing."""
    space = {name: {"min": 0.0, "max": 1.0} for name in "abcdef"}
    found = _search("ehvi", space, _zdt2, 45, seed)
    assert _volume(found, (1.1, 1.1)) > 0.6 * (1.21 - 2 / 3)


def _three(at: Mapping[str, Any]) -> tuple[float, ...]:
    return tuple(sum((at[n] - (n == m)) ** 2 for n in "abc") for m in "abc")


def test_more_of_three_objectives_is_dominated_than_by_evolution() -> None:
    reference = (2.0, 2.0, 2.0)
    own, other = (
        _volume(_search(name, _PLANE, _three, 40), reference) for name in ("ehvi", "nsga2")
    )
    assert own > 1.02 * other


@pytest.mark.parametrize(
    ("objectives", "count", "chosen"),
    [(2, 6, "qmc"), (2, 20, "ehvi"), (3, 20, "ehvi"), (4, 20, "gp"), (2, 501, "nsga2")],
)
def test_auto_searches_by_hypervolume_while_trials_are_few(
    objectives: int, count: int, chosen: str
) -> None:
    done = Observation(
        parameters={"a": 0.5}, outcome=Outcome.DONE, costs=tuple(map(float, range(objectives)))
    )
    failed = Observation(parameters={"a": 0.1}, outcome=Outcome.FAILED)
    problem = Problem(
        space=parse_space({name: _PLANE[name] for name in "abc"} | {"d": ["a", "b"]}),
        seed=1,
        number=count + 1,
        trials=(failed, *[done] * count),
    )
    assert choose_algorithm("auto", problem) == chosen


def _costs(at: Mapping[str, Any]) -> tuple[float, float, float, float]:
    far = (at["x"] - 0.5) ** 2 + "abc".index(at["o"])
    return far, 1 - at["x"], at["n"] + at.get("y", 0.5), 4.0 - at["n"]


@pytest.mark.parametrize("objectives", [2, 3, 4])
def test_suggestions_are_of_the_space_and_the_same_each_time(objectives: int) -> None:
    space = {
        "x": {"min": 0, "max": 1},
        "o": ["a", "b", "c"],
        "n": {"min": 1, "max": 4, "type": "int"},
        "y": {"min": 0.001, "max": 1, "scale": "log", "active_if": {"o": "a"}},
    }

    def search() -> list[Observation]:
        constraints = ("x <= 0.9", "n * x < 3")
        return _search(
            "ehvi", space, lambda at: _costs(at)[:objectives], 24, constraints=constraints
        )

    trials = search()
    assert trials == search()
    for one in (dict[str, Any](trial.parameters) for trial in trials):
        assert ("y" in one) == (one["o"] == "a")
        assert one["x"] <= 0.9
        assert one["n"] * one["x"] < 3
    assert len({str(trial.parameters) for trial in trials}) == 24


@pytest.mark.parametrize(
    "columns",
    [
        [[1.0] * 20, [2.0] * 20],
        [[1e300, *range(19)], [1e-300, *range(19)]],
        [[*range(20)], [1.0] * 20],
        [[*range(20)], [*range(20)]],
        [[*range(2)] * 10, [*range(4)] * 5, [*range(20)]],
    ],
)
def test_odd_costs_are_no_trouble(columns: list[list[float]]) -> None:
    trials = [
        Observation(parameters={"x": n / 20}, outcome=Outcome.DONE, costs=tuple(map(float, costs)))
        for n, costs in enumerate(zip(*columns, strict=True))
    ]
    trials += [Observation(parameters={"x": 0.5}, outcome=one) for one in Outcome][1:]
    space = parse_space({"x": {"min": 0.0, "max": 1.0}})
    found = ehvi.suggest(Problem(space=space, seed=1, number=len(trials), trials=tuple(trials)))
    assert 0 <= float(found["x"]) <= 1


def test_trials_that_run_keep_others_away_and_those_that_failed_too() -> None:
    def costs(at: Mapping[str, Any]) -> tuple[float, float]:
        return at["a"] ** 2 + at["b"], (at["a"] - 1) ** 2 + at["b"]

    trials = _search("ehvi", {name: _PLANE[name] for name in "ab"}, costs, 16)
    space = parse_space({name: _PLANE[name] for name in "ab"})
    problem = Problem(space=space, seed=1, number=16, trials=tuple(trials))
    for outcome in (Outcome.RUNNING, Outcome.FAILED):
        latest = problem
        for _ in range(4):
            one = Observation(parameters=ehvi.suggest(latest), outcome=outcome)
            latest = replace(latest, trials=(*latest.trials, one))
        points = [list(one.parameters.values()) for one in latest.trials[16:]]
        apart = [math.dist(a, b) for n, a in enumerate(points) for b in points[:n]]  # type: ignore[arg-type]
        assert min(apart) > 1e-3


@pytest.mark.parametrize(("objectives", "count"), [(2, 600), (3, 300), (4, 150)])
def test_a_long_history_is_no_trouble(objectives: int, count: int) -> None:
    luck = np.random.default_rng(2)
    points = luck.random((count, objectives))
    points /= np.linalg.norm(points, axis=1)[:, None]  # all of them are on the front
    space = parse_space({f"x{n}": {"min": 0.0, "max": 1.0} for n in range(objectives)})
    trials = tuple(
        Observation(
            parameters={f"x{n}": float(at) for n, at in enumerate(point)},
            outcome=Outcome.DONE,
            costs=tuple(point.tolist()),
        )
        for point in points
    )
    found = ehvi.suggest(Problem(space=space, seed=1, number=count, trials=trials))
    assert all(0 <= float(value) <= 1 for value in found.values())
