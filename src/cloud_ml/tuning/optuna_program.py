"""The tuner that asks the samplers of Optuna: as ``program``, but it loads the package Optuna."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import optuna

from cloud_ml.domain.studies.samplers import PREFIX, SAMPLERS
from cloud_ml.domain.studies.space import parse_space
from cloud_ml.tuning import optuna_samplers, request_loop
from cloud_ml.tuning.base import Observation, Outcome, Problem
from cloud_ml.tuning.known_studies import UNKNOWN, ReceivedStudies

_TRIALS = 12


def main() -> int:
    """Answer requests until the input ends."""
    return request_loop.run(answer, _warm_up)


def answer(request: dict[str, Any], studies: ReceivedStudies) -> dict[str, Any]:
    """The parameters that a request asks for, or why there are none."""
    try:
        problem = studies.problem(request)
        if problem is None:
            return UNKNOWN
        return {"parameters": dict(optuna_samplers.suggest(request["algorithm"], problem))}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:300]}


def _warm_up() -> None:
    optuna.logging.disable_default_handler()
    space = parse_space({"x": {"min": 0, "max": 1}, "y": {"min": 0, "max": 1}})
    trials = [
        Observation(parameters={"x": n / _TRIALS, "y": 0.5}, outcome=Outcome.DONE, cost=1.0 + n)
        for n in range(_TRIALS)
    ]
    problem = Problem(space=space, seed=0, number=_TRIALS, trials=trials)
    for name, sampler in SAMPLERS.items():
        if all(importlib.util.find_spec(one) is not None for one in sampler.packages):
            optuna_samplers.suggest(PREFIX + name, problem)


if __name__ == "__main__":
    sys.exit(main())
