"""Optuna on our problems, in its own environment: ``python -m tuning.optuna_driver SEEDS TRIALS SAMPLER
[PROBLEM …]``, or ``SEEDS curves FACTOR`` for its pruner.

Prints a JSON document: problem → for each seed the true costs of its trials, and the milliseconds of
processor time of a suggestion. Searches share the cores that this process may use.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
import warnings
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # each search has one core

import optuna

from tuning.problems import EPOCHS, PROBLEMS, TRIALS_OF_CURVES, curve

_SAMPLERS = {"tpe": "TPESampler", "gp": "GPSampler"}


def all_suggested(trial: Any, space: Mapping[str, Any]) -> Mapping[str, Any]:
    """The parameters of a trial: those whose conditions hold, which name parameters before them."""
    found: dict[str, Any] = {}
    for name, parameter in space.items():
        if _is_active(parameter, found):
            found[name] = suggested(trial, name, parameter)
    return found


def _is_active(parameter: Any, found: Mapping[str, Any]) -> bool:
    conditions = parameter.get("active_if", {}) if isinstance(parameter, dict) else {}
    return all(
        name in found and found[name] in (values if isinstance(values, list) else [values])
        for name, values in conditions.items()
    )


def suggested(trial: Any, name: str, parameter: Any) -> Any:
    if isinstance(parameter, list):
        return trial.suggest_categorical(name, parameter)
    if "values" in parameter:
        return trial.suggest_categorical(name, parameter["values"])
    if parameter.get("type") == "int":
        log = parameter.get("scale") == "log"
        return trial.suggest_int(name, parameter["min"], parameter["max"], log=log)
    return trial.suggest_float(
        name, parameter["min"], parameter["max"], log=parameter.get("scale") == "log"
    )


def run(task: tuple[str, int, int, str]) -> Mapping[str, Any]:
    """One search: the name of its problem, the seed, the number of trials and the sampler."""
    name, seed, trials, sampler = task
    warnings.simplefilter("ignore")  # of a sampler that is experimental
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    problem = next(one for one in PROBLEMS if one.name == name)
    study = optuna.create_study(sampler=getattr(optuna.samplers, _SAMPLERS[sampler])(seed=seed))
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
    trials, sampler = int(sys.argv[2]), sys.argv[3]
    names = sys.argv[4:] or [problem.name for problem in PROBLEMS]
    tasks = [(name, seed, trials, sampler) for name in names for seed in range(seeds)]
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        searches = list(pool.map(run, tasks))
    found = {name: searches[at * seeds : (at + 1) * seeds] for at, name in enumerate(names)}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
