"""A sampler of Optuna on our problems of several objectives, in its own environment:
``python -m tuning.optuna_fronts SEEDS TRIALS [FRONTS|VOLUMES [SAMPLER]]``. It is NSGA-II, unless named.

Prints a JSON document: problem → for each seed the costs of its trials.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

import optuna

from tuning.fronts_problems import FRONTS, VOLUMES
from tuning.optuna_driver import all_suggested

_SETS = {"FRONTS": FRONTS, "VOLUMES": VOLUMES}


def run(place: tuple[str, int], seed: int, trials: int, name: str) -> Sequence[Sequence[float]]:
    problem = _SETS[place[0]][place[1]]
    sampler = getattr(optuna.samplers, name)(seed=seed)
    directions = ["minimize"] * len(problem.reference)
    study = optuna.create_study(directions=directions, sampler=sampler)
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
    chosen = sys.argv[3] if len(sys.argv) > 3 else "FRONTS"
    name = sys.argv[4] if len(sys.argv) > 4 else "NSGAIISampler"
    found = {}
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as workers:
        for number, one in enumerate(_SETS[chosen]):
            place = chosen, number
            begun = [workers.submit(run, place, seed, trials, name) for seed in range(seeds)]
            found[one.name] = [each.result() for each in begun]
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
