"""How near the best our algorithms come, beside Optuna's default sampler and chance. Other work on the
machine changes nothing of it.

Run: ``python benchmarks/run.py tuning.quality`` (TUNING_SEEDS=20: the whole, half an hour of a core;
TUNING_GP=1: also Optuna's Gaussian process on two problems, which installs PyTorch).
"""

from __future__ import annotations

import itertools
import os
import statistics
from collections.abc import Mapping

from harness import Figure, median

from tuning.problems import PROBLEMS
from tuning.regrets import (
    difference_interval,
    distances,
    mean_regret,
    trials_to_reach,
)
from tuning.searches import Runs, search_all, search_with_optuna

SEEDS = int(os.environ.get("TUNING_SEEDS", "5"))
TRIALS = int(os.environ.get("TUNING_TRIALS", "200"))
BUDGETS = [count for count in (25, 50, 100, 200) if count <= TRIALS]
MIDDLE = min(100, TRIALS)
"""Where most is compared."""
_PEER, _GP = "Optuna's TPE", "Optuna's GP"
_GP_SEEDS = 3
_GP_BEST = {"Branin": (0.39795, 0.3979), "Hartmann 6": (-3.32, -3.322)}
"""Problem → what is to be reached after 100 trials, and what Optuna's GP reached when it was measured
alone.
"""


def run() -> list[Figure]:
    ours = {name: search_all(name, SEEDS, TRIALS) for name in ("random", "auto", "tpe")}
    peer = search_with_optuna(SEEDS, TRIALS)
    process = _search_with_process()
    _print_distances({**ours, **({_PEER: peer} if peer else {})})
    return [
        *_regret_figures(ours, peer),
        *_speed_figures(ours["auto"], peer),
        *_best_figures(ours["auto"], process),
    ]


def _search_with_process() -> Runs | None:
    """Optuna's Gaussian process, if it is asked for: it needs PyTorch and much time."""
    if not os.environ.get("TUNING_GP"):
        return None
    seeds = min(SEEDS, _GP_SEEDS)
    return search_with_optuna(
        seeds, MIDDLE, peer="optuna-gp", sampler="gp", names=list(_GP_BEST)
    )  # fmt: skip


def _regret_figures(ours: Mapping[str, Runs], peer: Runs | None) -> list[Figure]:
    kinds = list(dict.fromkeys(problem.kind for problem in PROBLEMS))
    searches = [("auto", budget) for budget in BUDGETS] + [("tpe", MIDDLE)]
    return [
        _regret_figure(name, budget, kind, ours, peer)
        for (name, budget), kind in itertools.product(searches, (*kinds, "all"))
    ]


def _regret_figure(
    name: str, budget: int, kind: str, ours: Mapping[str, Runs], peer: Runs | None
) -> Figure:
    problems = [one for one in PROBLEMS if kind in (one.kind, "all")]
    chance = ours["random"]
    what = f"regret of {name} after {budget} trials, {kind} problems"
    own = mean_regret(ours[name], chance, problems, budget)
    if peer is None:
        return Figure(what, own, "", 1.0)
    reference = mean_regret(peer, chance, problems, budget)
    low, high = difference_interval(ours[name], peer, chance, problems, budget)
    note = f"difference {low:+.3f} to {high:+.3f}"
    return Figure(what, own, "", reference, reference, _PEER, note=note)


def _speed_figures(runs: Runs, peer: Runs | None) -> list[Figure]:
    """How many trials ``auto`` needs for what Optuna's TPE reaches."""
    if peer is None:
        return []
    needed = {
        one.name: trials_to_reach(runs, one, float(distances(peer, one, MIDDLE).mean())) or TRIALS
        for one in PROBLEMS
        if one.kind == "continuous"
    }
    note = ", ".join(f"{name} {count}" for name, count in needed.items())
    what = f"trials of auto to the value of Optuna's TPE at {MIDDLE}, continuous problems"
    mean = statistics.mean(needed.values())
    return [Figure(what, mean, "", MIDDLE / 3, MIDDLE, _PEER, note=note)]


def _best_figures(runs: Runs, process: Runs | None) -> list[Figure]:
    """The best values of two problems beside Optuna's Gaussian process."""
    figures = []
    for name, (target, reference) in _GP_BEST.items():
        bests = _bests(runs, name)
        other = median(_bests(process, name)) if process else reference
        what = f"best of auto after {MIDDLE} trials, {name}, median of seeds"
        note = f"mean {statistics.mean(bests):.5g}"
        figures.append(Figure(what, median(bests), "", target, other, _GP, note=note))
    return figures


def _bests(runs: Runs, name: str) -> list[float]:
    return [min(one.costs[:MIDDLE]) for one in runs[name]]


def _print_distances(columns: Mapping[str, Runs]) -> None:
    print(f"best cost above the least, mean of {SEEDS} seeds after {MIDDLE} trials")
    print(f"  {'':18}" + "".join(f"{name:>14}" for name in columns))
    for problem in PROBLEMS:
        left = [float(distances(runs, problem, MIDDLE).mean()) for runs in columns.values()]
        cells = "".join(f"{value:14.4g}" for value in left)
        print(f"  {problem.name:18}{cells}", flush=True)
