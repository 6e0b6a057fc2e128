"""Optuna on our problems, in its own environment: ``python optuna_driver.py SEEDS TRIALS``, or
``SEEDS curves FACTOR`` for its pruner.

Prints a JSON document: problem → for each seed the true costs of its trials, and the milliseconds of
processor time of a suggestion.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Mapping
from typing import Any

import optuna
from problems import EPOCHS, PROBLEMS, TRIALS_OF_CURVES, Problem, curve


def all_suggested(trial: Any, space: Mapping[str, Any]) -> Mapping[str, Any]:
    """The parameters of a trial: those whose conditions hold, which name parameters before them."""
    found: dict[str, Any] = {}
    for name, asked in space.items():
        if _is_active(asked, found):
            found[name] = suggested(trial, name, asked)
    return found


def _is_active(asked: Any, found: Mapping[str, Any]) -> bool:
    conditions = asked.get("active_if", {}) if isinstance(asked, dict) else {}
    return all(
        name in found and found[name] in (wanted if isinstance(wanted, list) else [wanted])
        for name, wanted in conditions.items()
    )


def suggested(trial: Any, name: str, asked: Any) -> Any:
    if isinstance(asked, list):
        return trial.suggest_categorical(name, asked)
    if "values" in asked:
        return trial.suggest_categorical(name, asked["values"])
    if asked.get("type") == "int":
        log = asked.get("scale") == "log"
        return trial.suggest_int(name, asked["min"], asked["max"], log=log)
    return trial.suggest_float(name, asked["min"], asked["max"], log=asked.get("scale") == "log")


def run(problem: Problem, seed: int, trials: int) -> Mapping[str, Any]:
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    luck, costs, took = random.Random(seed), [], []
    for _ in range(trials):
        begin = time.process_time()
        trial = study.ask()
        parameters = all_suggested(trial, problem.space)
        took.append(1000 * (time.process_time() - begin))
        study.tell(trial, problem.seen(parameters, luck))
        costs.append(problem.cost(parameters))
    return {"costs": costs, "took": took}


def stopped(seed: int, factor: int) -> tuple[int, float]:
    """The epochs that its pruner runs, and how far the best whole trial is from the best of all."""
    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=factor)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0), pruner=pruner)
    epochs, best = 0, float("inf")
    for number in range(TRIALS_OF_CURVES):
        trial, values = study.ask(), curve(seed, number)
        for epoch, value in enumerate(values, start=1):
            trial.report(value, epoch)
            epochs += 1
            if epoch < EPOCHS and trial.should_prune():
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
                break
        else:
            study.tell(trial, values[-1])
            best = min(best, values[-1])
    return epochs, best - min(curve(seed, number)[-1] for number in range(TRIALS_OF_CURVES))


def main() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    seeds = int(sys.argv[1])
    if sys.argv[2] == "curves":
        json.dump([stopped(seed, int(sys.argv[3])) for seed in range(seeds)], sys.stdout)
        return
    trials = int(sys.argv[2])
    found = {
        problem.name: [run(problem, seed, trials) for seed in range(seeds)] for problem in PROBLEMS
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
