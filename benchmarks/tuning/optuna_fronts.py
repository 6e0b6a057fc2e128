"""Optuna's NSGA-II on our problems of two objectives, in its own environment:
``python optuna_fronts.py SEEDS TRIALS``.

Prints a JSON document: problem → for each seed the costs of its trials.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import optuna
from fronts_problems import FRONTS, FrontProblem
from optuna_driver import all_suggested


def run(problem: FrontProblem, seed: int, trials: int) -> Sequence[Sequence[float]]:
    sampler = optuna.samplers.NSGAIISampler(seed=seed)
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)
    found = []
    for _ in range(trials):
        trial = study.ask()
        costs = problem.costs(all_suggested(trial, problem.space))
        study.tell(trial, costs)
        found.append(costs)
    return found


def main() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    seeds, trials = int(sys.argv[1]), int(sys.argv[2])
    found = {one.name: [run(one, seed, trials) for seed in range(seeds)] for one in FRONTS}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
