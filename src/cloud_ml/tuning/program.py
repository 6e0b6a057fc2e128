"""The tuner: a process that computes with numpy and scipy, and nothing else. It chooses parameters,
and says how much each of them matters.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

from cloud_ml.domain.studies.space import parse_space
from cloud_ml.tuning import request_loop
from cloud_ml.tuning.base import IMPORTANCE, Algorithm, Observation, Outcome, Problem
from cloud_ml.tuning.known_studies import UNKNOWN, ReceivedStudies
from cloud_ml.tuning.numeric import ehvi, gp, nsga2, tpe
from cloud_ml.tuning.numeric.importance import importance
from cloud_ml.tuning.numeric.scalarisation import scalarise

_ALGORITHMS: dict[str, Algorithm] = {
    "ehvi": ehvi.suggest,
    "gp": lambda problem: gp.suggest(scalarise(problem)),
    "nsga2": nsga2.suggest,
    "tpe": tpe.suggest,
}
if importlib.util.find_spec("cmaes") is not None:
    from cloud_ml.tuning.numeric import cma

    _ALGORITHMS["cma-es"] = cma.suggest


def main() -> int:
    """Answer requests until the input ends."""
    return request_loop.run(answer, _warm_up)


def answer(request: dict[str, Any], studies: ReceivedStudies) -> dict[str, Any]:
    """The parameters or the importance that a request asks for, or why there is none."""
    try:
        problem = studies.problem(request)
        if problem is None:
            return UNKNOWN
        if request["algorithm"] == IMPORTANCE:
            return {"importance": importance(problem)}
        return {"parameters": dict(_ALGORITHMS[request["algorithm"]](problem))}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:300]}


def _warm_up() -> None:
    space = parse_space({"x": {"min": 0, "max": 1}, "y": ["a", "b"]})
    trials = [
        Observation(parameters={"x": n / 12, "y": "ab"[n % 2]}, outcome=Outcome.DONE, cost=1.0 + n)
        for n in range(12)
    ]
    for suggest in _ALGORITHMS.values():
        suggest(Problem(space=space, seed=0, number=12, trials=trials))
    importance(Problem(space=space, seed=0, number=12, trials=trials), trees=1)


if __name__ == "__main__":
    sys.exit(main())
