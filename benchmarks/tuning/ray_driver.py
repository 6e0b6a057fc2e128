"""Trials of Ray Tune, in its own environment: ``python -m tuning.ray_driver FOLDER TRIALS PLACES``.

Prints how many trials end in a second, from the first to the last. Ray has been started before.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping

import ray  # type: ignore[import-not-found,unused-ignore]
from ray import tune  # type: ignore[import-not-found,unused-ignore]


def main() -> None:
    """See above."""
    folder, trials, places = sys.argv[1], *map(int, sys.argv[2:])
    ray.init(
        num_cpus=places, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False
    )
    tuner = tune.Tuner(
        _reported,
        param_space={"x": tune.uniform(0.0, 1.0)},
        tune_config=tune.TuneConfig(num_samples=trials, max_concurrent_trials=places),
        run_config=tune.RunConfig(storage_path=folder, verbose=0),
    )
    began = time.monotonic()
    results = tuner.fit()
    took = time.monotonic() - began
    losses = [one.metrics["loss"] for one in results]
    assert len(set(losses)) == trials, losses
    sys.stdout.write(f"{trials / took}\n")


def _reported(parameters: Mapping[str, float]) -> None:
    tune.report({"loss": parameters["x"]})


if __name__ == "__main__":
    main()
