"""Searches of our algorithms and of Optuna's on the problems, several at a time: each has one core."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the tuner has it; before numpy is loaded

from peers.having import Absent, folder_of

from cloud_ml.domain.studies.space import parse_space
from cloud_ml.tuning.algorithms import LIGHT, choose_algorithm
from cloud_ml.tuning.base import Observation, Outcome
from cloud_ml.tuning.base import Problem as Question
from cloud_ml.tuning.numeric import gp, tpe
from tuning.problems import PROBLEMS, Problem

_ALGORITHMS = {**LIGHT, "gp": gp.suggest, "tpe": tpe.suggest}


@dataclass(frozen=True)
class Search:
    """One search: the costs of its trials without noise, and the milliseconds of processor time that
    each suggestion took.
    """

    costs: Sequence[float]
    took: Sequence[float]


Runs = Mapping[str, Sequence[Search]]
"""Problem → its searches, one for each seed."""


def search_all(algorithm: str, seeds: int, trials: int) -> Runs:
    """The searches of an algorithm of ours on all problems."""
    tasks = [(algorithm, one.name, seed, trials) for one in PROBLEMS for seed in range(seeds)]
    context = multiprocessing.get_context("fork")  # which does not load everything again
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), mp_context=context) as pool:
        found = list(pool.map(_search_task, tasks))
    return {
        one.name: found[at * seeds : (at + 1) * seeds] for at, one in enumerate(PROBLEMS)
    }  # fmt: skip


def _search_task(task: tuple[str, str, int, int]) -> Search:
    algorithm, name, seed, trials = task
    return search(algorithm, problem_named(name), seed, trials)


def problem_named(name: str) -> Problem:
    """The problem of that name."""
    return next(one for one in PROBLEMS if one.name == name)


def search(
    algorithm: str, problem: Problem, seed: int, trials: int, *, by_chance: int = 0
) -> Search:
    """One search, whose first trials are by chance if so many are asked for."""
    space, luck = parse_space(problem.space), random.Random(seed)
    seen: list[Observation] = []
    costs, took = [], []
    for number in range(trials):
        begin = time.process_time()
        question = Question(space=space, seed=seed, number=number, trials=tuple(seen))
        name = "random" if number < by_chance else choose_algorithm(algorithm, question)
        parameters = _ALGORITHMS[name](question)
        took.append(1000 * (time.process_time() - begin))
        cost = problem.seen(parameters, luck)
        seen.append(Observation(parameters=parameters, outcome=Outcome.DONE, cost=cost))
        costs.append(problem.cost(parameters))
    return Search(costs, took)


def search_with_optuna(
    seeds: int,
    trials: int,
    *,
    peer: str = "optuna",
    sampler: str = "tpe",
    names: Sequence[str] = (),
) -> Runs | None:
    """The searches of a sampler of Optuna's; ``None`` if it cannot be installed here."""
    try:
        python = folder_of(peer) / "bin" / "python"
    except Absent as error:
        print(f"  {error}")
        return None
    command = [python, "-m", "tuning.optuna_driver", str(seeds), str(trials), sampler, *names]
    output = subprocess.run(
        command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, check=True
    ).stdout
    found = json.loads(output)
    return {name: [Search(**one) for one in searches] for name, searches in found.items()}
