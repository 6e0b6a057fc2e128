"""What a suggestion costs after 100 and 500 trials: processor time, beside Optuna's samplers.

Run: ``python benchmarks/run.py tuning.suggestions`` (TUNING_GP=1: also Optuna's Gaussian process, which
installs PyTorch).
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Collection

from harness import Figure, median

from tuning.problems import PROBLEMS
from tuning.searches import Runs, problem_named, search, search_with_optuna

SEEDS = 3
_SMOOTH = [one.name for one in PROBLEMS if one.kind == "continuous"]
_OF_GP = ["Branin", "Hartmann 6"]
_GP_MS = 76.0
"""Of Optuna's Gaussian process when it was measured alone."""
_EARLY, _LATE = 100, 500
_LAST = 20
"""So many suggestions before a number of trials are timed."""


def run() -> list[Figure]:
    ours = {name: _search(name) for name in ("auto", "tpe")}
    peer = search_with_optuna(SEEDS, _EARLY, names=_SMOOTH)
    figures = []
    for name, runs in ours.items():
        took = _took(runs, _SMOOTH)
        reference = median(_took(peer, _SMOOTH)) if peer else None
        what = f"processor time of a suggestion of {name} at {_EARLY} trials"
        note = f"mean {statistics.mean(took):.3g}, with the fits"
        figures.append(Figure(what, median(took), "ms", 5.0, reference, "Optuna's TPE", note=note))
    return [*figures, _beside_process(ours["auto"]), _late_figure()]


def _search(algorithm: str) -> Runs:
    """One search at a time: what runs beside it takes its share of the caches."""
    return {
        name: [search(algorithm, problem_named(name), seed, _EARLY) for seed in range(SEEDS)]
        for name in _SMOOTH
    }


def _beside_process(runs: Runs) -> Figure:
    """Beside Optuna's Gaussian process, or what it took when it was measured alone."""
    process = None
    if os.environ.get("TUNING_GP"):
        process = search_with_optuna(SEEDS, _EARLY, peer="optuna-gp", sampler="gp", names=_OF_GP)
    other = median(_took(process, _OF_GP)) if process else _GP_MS
    what = f"processor time of a suggestion of auto at {_EARLY} trials, to Optuna's GP"
    return Figure(what, median(_took(runs, _OF_GP)), "ms", other / 15, other, "Optuna's GP")


def _late_figure() -> Figure:
    took = search("auto", problem_named("Hartmann 6"), 0, _LATE, by_chance=480).took[-_LAST:]
    what = f"processor time of a suggestion of auto at {_LATE} trials"
    note = f"mean {statistics.mean(took):.3g}, with the fits"
    return Figure(what, median(took), "ms", 30.0, note=note)


def _took(runs: Runs, names: Collection[str]) -> list[float]:
    """The milliseconds of the last suggestions of each search."""
    searches = (one for name in names for one in runs[name])
    return [ms for one in searches for ms in one.took[_EARLY - _LAST : _EARLY]]


if __name__ == "__main__":
    for figure in run():
        print(figure)
