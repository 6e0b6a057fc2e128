"""How much of the space of two objectives our algorithms dominate, beside Optuna's NSGA-II and
chance.

Run: ``python benchmarks/run.py tuning.fronts`` (TUNING_SEEDS=20 TUNING_TRIALS=200: more).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
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
from tuning.fronts_problems import FRONTS, FrontProblem

SEEDS = int(os.environ.get("TUNING_SEEDS", "5"))
TRIALS = int(os.environ.get("TUNING_TRIALS", "100"))
_ALGORITHMS = {
    **LIGHT,
    "ehvi": ehvi.suggest,
    "gp": lambda problem: gp.suggest(scalarise(problem)),
    "nsga2": nsga2.suggest,
}
_PEER = "Optuna's NSGA-II"
Volumes = Mapping[str, Sequence[float]]


def run() -> list[Figure]:
    took: list[float] = []
    ours = {name: _all(name, took) for name in ("random", "nsga2", "auto")}
    peer = _optuna()
    columns = {**ours, **({_PEER: peer} if peer else {})}
    print(f"hypervolume, mean of {SEEDS} seeds after {TRIALS} trials; more is better")
    print(f"  {'':8}" + "".join(f"{name:>18}" for name in columns))
    for problem in FRONTS:
        cells = "".join(f"{statistics.mean(one[problem.name]):18.4f}" for one in columns.values())
        print(f"  {problem.name:8}{cells}", flush=True)
    figures = []
    for name in ("auto", "nsga2"):
        for problem in FRONTS:
            own = statistics.mean(ours[name][problem.name])
            reference = statistics.mean(peer[problem.name]) if peer else None
            chance = statistics.mean(ours["random"][problem.name])
            what = f"hypervolume of {name} after {TRIALS} trials, {problem.name}"
            target = chance if reference is None else reference
            figures.append(Figure(what, own, "", target, reference, _PEER, least=True))
    what = f"processor time of a suggestion of auto at {TRIALS} trials, two objectives"
    figures.append(Figure(what, median(took), "ms", 30.0))
    return figures


def _all(name: str, took: list[float]) -> Volumes:
    return {one.name: [_search(name, one, seed, took) for seed in range(SEEDS)] for one in FRONTS}


def _search(name: str, problem: FrontProblem, seed: int, took: list[float]) -> float:
    space = parse_space(problem.space)
    trials: list[Observation] = []
    for number in range(TRIALS):
        begin = time.process_time()
        question = Problem(space=space, seed=seed, number=number, trials=tuple(trials))
        parameters = _ALGORITHMS[choose_algorithm(name, question)](question)
        if name == "auto" and number >= TRIALS - 20:
            took.append(1000 * (time.process_time() - begin))
        costs = problem.costs(parameters)
        trials.append(Observation(parameters=parameters, outcome=Outcome.DONE, costs=costs))
    return volume_of([trial.costs for trial in trials], problem)


def volume_of(costs: Sequence[tuple[float, ...]], problem: FrontProblem) -> float:
    """The hypervolume of the front of these costs."""
    return hypervolume(costs, problem.reference) or 0.0


def _optuna() -> Volumes | None:
    try:
        python = str(folder_of("optuna") / "bin" / "python")
    except Absent as error:
        print(f"  {error}")
        return None
    command = [python, "-m", "tuning.optuna_fronts", str(SEEDS), str(TRIALS)]
    folder = Path(__file__).parents[1]
    output = subprocess.run(command, cwd=folder, capture_output=True, check=True).stdout
    costs: Mapping[str, Sequence[Sequence[Sequence[float]]]] = json.loads(output)
    return {
        problem.name: [
            volume_of([tuple(one) for one in found], problem) for found in costs[problem.name]
        ]
        for problem in FRONTS
    }
