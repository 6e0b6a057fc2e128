"""What share of the largest hypervolume is found after 25, 50 and 100 trials: by ``ehvi``, by the ways
of ``gp`` (ParEGO) and ``nsga2``, and by Optuna.

Run: ``BENCH_LIMIT_S=3000 python benchmarks/run.py tuning.hypervolumes`` (TUNING_SEEDS=3: shorter).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the tuner has it; before numpy is loaded

from harness import Figure, median
from peers.having import Absent, folder_of

from cloud_ml.domain.studies.space import parse_space
from cloud_ml.models.studies.pareto import hypervolume
from cloud_ml.tuning.algorithms import LIGHT, choose_algorithm
from cloud_ml.tuning.base import Observation, Outcome, Problem
from cloud_ml.tuning.numeric import ehvi, gp, nsga2
from cloud_ml.tuning.numeric.scalarisation import scalarise
from tuning.fronts_problems import VOLUMES, FrontProblem

SEEDS = int(os.environ.get("TUNING_SEEDS", "10"))
WORKERS = int(os.environ.get("TUNING_WORKERS", "0")) or len(os.sched_getaffinity(0))
BUDGETS = (25, 50, 100)
_TIMED = 20
_ALGORITHMS = {
    **LIGHT,
    "ehvi": ehvi.suggest,
    "gp": lambda problem: gp.suggest(scalarise(problem)),
    "nsga2": nsga2.suggest,
}
_OWN = ("ehvi", "gp", "nsga2")
_SAMPLERS = {"NSGAIISampler": "Optuna's NSGA-II", "TPESampler": "Optuna's TPE"}
_MOST_MS = {2: 100.0, 3: 150.0}
Costs = Sequence[tuple[float, ...]]
Shares = Mapping[str, Sequence[Sequence[float]]]
"""Problem → for each seed the shares by budget."""


def run() -> list[Figure]:
    took: dict[int, list[float]] = {2: [], 3: []}
    found = {name: _search_all(name, took) for name in _OWN}
    found |= {
        label: shares
        for sampler, label in _SAMPLERS.items()
        if (shares := _search_by_optuna(sampler)) is not None
    }
    means = {name: _means(shares) for name, shares in found.items()}
    _print(means)
    figures = [_figure(means, problem, at) for problem in VOLUMES for at in range(len(BUDGETS))]
    for objectives, times in took.items():
        what = f"processor time of a suggestion of ehvi at {BUDGETS[-1]} trials, {objectives} objectives"
        note = f"p95 {statistics.quantiles(times, n=20)[-1]:.0f}, with the fits"
        figures.append(Figure(what, median(times), "ms", _MOST_MS[objectives], note=note))
    return figures


def _figure(
    means: Mapping[str, Mapping[str, Sequence[float]]], problem: FrontProblem, at: int
) -> Figure:
    what = f"share of the largest hypervolume by ehvi after {BUDGETS[at]} trials, {problem.name}"
    shares = {name: one[problem.name][at] for name, one in means.items()}
    own = shares.pop("ehvi")
    note = ", ".join(f"{name} {share:.3f}" for name, share in shares.items())
    peers = {name: share for name, share in shares.items() if name in _SAMPLERS.values()}
    best = max(peers, key=peers.__getitem__, default="")
    target = peers.get(best, shares["nsga2"])
    return Figure(what, own, "", target, peers.get(best), best, least=True, note=note)


def _means(shares: Shares) -> Mapping[str, Sequence[float]]:
    return {
        name: [statistics.mean(column) for column in zip(*one, strict=True)]
        for name, one in shares.items()
    }


def _print(means: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    print(f"share of the largest hypervolume after {BUDGETS} trials, mean of {SEEDS} seeds")
    for problem in VOLUMES:
        for name, one in means.items():
            cells = "".join(f"{share:9.4f}" for share in one[problem.name])
            print(f"  {problem.name:14}{name:18}{cells}", flush=True)


def _search_all(name: str, took: dict[int, list[float]]) -> Shares:
    """The searches of an algorithm, as many at a time as there are cores."""
    tasks = [(name, place, seed) for place in range(len(VOLUMES)) for seed in range(SEEDS)]
    found: dict[str, list[Sequence[float]]] = {one.name: [] for one in VOLUMES}
    with ProcessPoolExecutor(WORKERS) as workers:
        for (_, place, _), (shares, times) in zip(tasks, workers.map(_search, tasks), strict=True):
            problem = VOLUMES[place]
            found[problem.name].append(shares)
            if name == "ehvi":
                took[len(problem.reference)] += times
    return found


def _search(task: tuple[str, int, int]) -> tuple[Sequence[float], Sequence[float]]:
    """The shares of a search, and the milliseconds of its last suggestions."""
    name, place, seed = task
    problem, took = VOLUMES[place], []
    space = parse_space(problem.space)
    trials: list[Observation] = []
    for number in range(BUDGETS[-1]):
        begin = time.process_time()
        question = Problem(space=space, seed=seed, number=number, trials=tuple(trials))
        parameters = _ALGORITHMS[choose_algorithm(name, question)](question)
        took.append(1000 * (time.process_time() - begin))
        costs = problem.costs(parameters)
        trials.append(Observation(parameters=parameters, outcome=Outcome.DONE, costs=costs))
    return _shares([trial.costs for trial in trials], problem), took[-_TIMED:]


def _shares(costs: Costs, problem: FrontProblem) -> Sequence[float]:
    assert problem.largest is not None
    whole = problem.largest
    return [(hypervolume(costs[:count], problem.reference) or 0.0) / whole for count in BUDGETS]


def _search_by_optuna(sampler: str) -> Shares | None:
    try:
        python = str(folder_of("optuna") / "bin" / "python")
    except Absent as error:
        print(f"  {error}")
        return None
    command = [
        python,
        "-m",
        "tuning.optuna_fronts",
        str(SEEDS),
        str(BUDGETS[-1]),
        "VOLUMES",
        sampler,
    ]
    folder = Path(__file__).parents[1]
    output = subprocess.run(command, cwd=folder, capture_output=True, check=True).stdout
    costs: Mapping[str, Sequence[Sequence[Sequence[float]]]] = json.loads(output)
    return {
        problem.name: [
            _shares([tuple(one) for one in found], problem) for found in costs[problem.name]
        ]
        for problem in VOLUMES
    }
