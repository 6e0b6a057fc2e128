"""How many epochs early stopping spares: our ``asha`` beside Optuna's pruner on the same curves, one
trial after another. Run: ``python benchmarks/run.py tuning.stopping``.
"""

from __future__ import annotations

import json
import statistics
import subprocess
from pathlib import Path

from harness import Figure
from peers.having import Absent, folder_of

from cloud_ml.domain.metrics.points import Point
from cloud_ml.domain.studies.stopping import Curve, Curves, Stopper, why_stop
from tuning.problems import EPOCHS, TRIALS_OF_CURVES, curve

SEEDS = 20
_FACTOR = 3


def run() -> list[Figure]:
    ours = [_search(seed) for seed in range(SEEDS)]
    theirs = _optuna()
    whole = EPOCHS * TRIALS_OF_CURVES
    epochs = statistics.mean(epochs for epochs, _ in ours)
    left = statistics.mean(left for _, left in ours)
    peer_epochs = statistics.mean(epochs for epochs, _ in theirs) if theirs else None
    peer_left = statistics.mean(left for _, left in theirs) if theirs else None
    target = 1.05 * peer_epochs if peer_epochs else whole
    name = "Optuna's SuccessiveHalving"
    return [
        Figure(f"epochs of {TRIALS_OF_CURVES} trials of {EPOCHS} with asha, of {whole}", epochs, "",
               target, peer_epochs, name),
        Figure("loss of the best trial above the least, with asha", left, "",
               peer_left or 1.0, peer_left, name),
    ]  # fmt: skip


def _search(seed: int) -> tuple[int, float]:
    """The epochs that were run, and how far the best whole trial is from the best of all."""
    stopper, ended = Stopper(name="asha", factor=_FACTOR), list[Curve]()
    epochs, best = 0, float("inf")
    for trial in range(TRIALS_OF_CURVES):
        points: list[Point] = []
        for epoch, value in enumerate(curve(seed, trial), start=1):
            points.append(Point(epoch, epochs + epoch, value))
            if why_stop(stopper, Curves(points, ended, ended)):
                break
        epochs += len(points)
        ended.append(points)
        if len(points) == EPOCHS:
            best = min(best, points[-1].value)
    return epochs, best - min(curve(seed, trial)[-1] for trial in range(TRIALS_OF_CURVES))


def _optuna() -> list[tuple[int, float]] | None:
    try:
        python = folder_of("optuna") / "bin" / "python"
    except Absent as error:
        print(f"  {error}")
        return None
    command = [python, "-m", "tuning.optuna_driver", str(SEEDS), "curves", str(_FACTOR)]
    folder = Path(__file__).parents[1]
    output = subprocess.run(command, cwd=folder, capture_output=True, check=True).stdout
    return [(epochs, left) for epochs, left in json.loads(output)]
