"""A long series in Aim's store, in Aim's own environment: ``python aim_driver.py FOLDER POINTS SHOWN``.

Prints a JSON document: points a second that ``Run.track`` takes, and the milliseconds of each of five
questions for at most SHOWN of them.
"""

from __future__ import annotations

import json
import random
import sys
import time
from typing import Any

from aim import Repo, Run
from aim.sdk.index_manager import RepoIndexManager

_QUESTIONS = 5


def main(folder: str, points: int, shown: int) -> None:
    rate = _track(folder, points)
    times = []
    for _ in range(_QUESTIONS):
        began = time.perf_counter()
        steps, values = _chart(folder, shown)
        times.append(1000 * (time.perf_counter() - began))
        assert 0 < len(steps) == len(values) <= shown + 1, len(steps)
        assert all(0 <= step < points for step in steps)
    print(json.dumps({"rate": rate, "times": times}))


def _track(folder: str, points: int) -> float:
    repo = Repo(folder, init=True)
    quiet = {
        "system_tracking_interval": None,
        "log_system_params": False,
        "capture_terminal_logs": False,
    }
    run, chance = Run(repo=repo, **quiet), random.Random(1)
    began = time.perf_counter()
    for step in range(points):
        run.track(chance.random(), name="loss", step=step)
    rate = points / (time.perf_counter() - began)
    run.close()
    # Only a run in the index is found. ``aim up`` keeps that index in the background.
    RepoIndexManager.get_index_manager(repo).index(run.hash)
    return rate


def _chart(folder: str, shown: int) -> tuple[Any, Any]:
    """Steps and values, as Aim's own server reads them for its console."""
    for run in Repo(folder).query_metrics("metric.name == 'loss'", report_mode=0).iter_runs():
        for metric in run:
            steps, columns = metric.data.sample(shown).numpy()
            return steps, columns[0]
    raise AssertionError("Aim has no such metric")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
