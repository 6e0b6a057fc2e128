"""How near the best our algorithms come, beside Optuna's default sampler and chance, and what a
suggestion costs.

The regret of a search is how far its best trial is from the best value that there is, in shares of
what chance leaves after as many trials: 1 is no better than chance. Run: ``python benchmarks/run.py
tuning.quality`` (TUNING_SEEDS=20 TUNING_TRIALS=200: more).
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the tuner has it; before numpy is loaded

from harness import Figure, median
from peers.having import Absent, folder_of

from cloud_ml.domain.studies.space import parse_space
from cloud_ml.tuning.algorithms import LIGHT, choose_algorithm
from cloud_ml.tuning.base import Observation, Outcome
from cloud_ml.tuning.base import Problem as Question
from cloud_ml.tuning.numeric import gp, tpe
from tuning.problems import PROBLEMS, Problem

SEEDS = int(os.environ.get("TUNING_SEEDS", "5"))
TRIALS = int(os.environ.get("TUNING_TRIALS", "100"))
_ALGORITHMS = {**LIGHT, "gp": gp.suggest, "tpe": tpe.suggest}
_PEER = "Optuna's TPE"
Runs = Mapping[str, Sequence[Mapping[str, Any]]]


def run() -> list[Figure]:
    ours = {name: _all(name) for name in ("random", "auto", "tpe")}
    peer = _optuna()
    _echo(ours, peer)
    figures = _regrets(ours, peer)
    smooth = {one.name for one in PROBLEMS if one.kind == "continuous"}  # the Gaussian process
    for name in ("auto", "tpe"):
        took = _took(ours[name], smooth)
        reference = median(_took(peer, smooth)) if peer else None
        what = f"processor time of a suggestion of {name} at {TRIALS} trials"
        note = f"mean {statistics.mean(took):.3g}, with the fits"
        figures.append(Figure(what, median(took), "ms", 5.0, reference, _PEER, note=note))
    return figures


def _regrets(ours: Mapping[str, Runs], peer: Runs | None) -> list[Figure]:
    kinds = list(dict.fromkeys(problem.kind for problem in PROBLEMS))
    figures = []
    for kind in (*kinds, "all"):
        chosen_ones = [one for one in PROBLEMS if kind in (one.kind, "all")]
        for name in ("auto", "tpe"):
            own = _mean_regret(ours[name], ours["random"], chosen_ones)
            reference = _mean_regret(peer, ours["random"], chosen_ones) if peer else None
            target = 1.0 if reference is None else reference
            what = f"regret of {name} after {TRIALS} trials, {kind} problems"
            figures.append(Figure(what, own, "", target, reference, _PEER))
    return figures


def _took(runs: Runs, names: Collection[str]) -> list[float]:
    """The milliseconds of the last suggestions of each search."""
    searches = (one for name in names for one in runs[name])
    return [ms for one in searches for ms in one["took"][-20:]]


def _mean_regret(runs: Runs, chance: Runs, problems: Sequence[Problem]) -> float:
    return statistics.mean(
        _left(runs[one.name], one) / max(_left(chance[one.name], one), 1e-9) for one in problems
    )


def _left(runs: Sequence[Mapping[str, Any]], problem: Problem) -> float:
    """The mean distance of the best trial from the best value."""
    return statistics.mean(min(one["costs"]) - problem.best for one in runs)


def _echo(ours: Mapping[str, Runs], peer: Runs | None) -> None:
    columns = {**ours, **({_PEER: peer} if peer else {})}
    print(f"best cost above the least, mean of {SEEDS} seeds after {TRIALS} trials")
    print(f"  {'':18}" + "".join(f"{name:>14}" for name in columns))
    for problem in PROBLEMS:
        cells = "".join(f"{_left(runs[problem.name], problem):14.4g}" for runs in columns.values())
        print(f"  {problem.name:18}{cells}", flush=True)


def _all(name: str) -> Runs:
    return {one.name: [_search(name, one, seed) for seed in range(SEEDS)] for one in PROBLEMS}


def _search(name: str, problem: Problem, seed: int) -> Mapping[str, Any]:
    space, luck = parse_space(problem.space), random.Random(seed)
    trials: list[Observation] = []
    costs, took = [], []
    for number in range(TRIALS):
        begin = time.process_time()
        question = Question(space=space, seed=seed, number=number, trials=tuple(trials))
        parameters = _ALGORITHMS[choose_algorithm(name, question)](question)
        took.append(1000 * (time.process_time() - begin))
        cost = problem.seen(parameters, luck)
        trials.append(Observation(parameters=parameters, outcome=Outcome.DONE, cost=cost))
        costs.append(problem.cost(parameters))
    return {"costs": costs, "took": took}


def _optuna() -> Runs | None:
    try:
        python = folder_of("optuna") / "bin" / "python"
    except Absent as error:
        print(f"  {error}")
        return None
    driver = Path(__file__).with_name("optuna_driver.py")
    said = subprocess.run(
        [python, driver, str(SEEDS), str(TRIALS)], capture_output=True, check=True
    ).stdout
    found: Runs = json.loads(said)
    return found
