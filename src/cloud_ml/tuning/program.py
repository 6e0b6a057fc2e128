"""The tuner: a process that computes with numpy and scipy, and nothing else. It chooses parameters,
and says how much each of them matters.

It reads a JSON document on a line, and writes one. It has no rights, no keys and no files: what it
knows of a study is in the request. It ends when its input does.
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import signal
import sys
from typing import Any

from cloud_ml.domain.studies.space import parse_space
from cloud_ml.linux import die_with_parent, forbid_new_privileges
from cloud_ml.tuning.base import IMPORTANCE, Algorithm, Observation, Outcome, Problem
from cloud_ml.tuning.known_studies import UNKNOWN, ReceivedStudies
from cloud_ml.tuning.numeric import gp, nsga2, tpe
from cloud_ml.tuning.numeric.importance import importance
from cloud_ml.tuning.numeric.scalarisation import scalarise

_ALGORITHMS: dict[str, Algorithm] = {
    "gp": lambda problem: gp.suggest(scalarise(problem)),
    "nsga2": nsga2.suggest,
    "tpe": tpe.suggest,
}
if importlib.util.find_spec("cmaes") is not None:
    from cloud_ml.tuning.numeric import cma

    _ALGORITHMS["cma-es"] = cma.suggest
_NICE = 5
_FILES = 16


def main() -> int:
    """Give up what is not needed, then answer one request after another."""
    parent, memory, user = map(int, sys.argv[1:])
    _warm_up()  # as modules that are loaded late may be out of reach afterwards
    _give_up(memory, user)
    if os.getppid() != parent:  # it ended before its end could be watched
        return 0
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    studies = ReceivedStudies()
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(json.loads(line), studies)) + "\n")
        sys.stdout.flush()
    return 0


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


def _give_up(memory: int, user: int) -> None:
    for what, most in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, _FILES),
        (resource.RLIMIT_NPROC, 0),
    ):
        resource.setrlimit(what, (most, most))
    if user and os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    die_with_parent(signal.SIGKILL)  # a change of the user takes this wish back
    forbid_new_privileges()
    os.nice(_NICE)


if __name__ == "__main__":
    sys.exit(main())
