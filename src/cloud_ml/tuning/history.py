"""What trials were like, made once for each: a study asks with all of its trials each time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from cloud_ml.domain.studies.spec import StudyRecord, TrialStatus, seeded
from cloud_ml.tuning.base import Observation, Problem, problem_of

_MOST_STUDIES = 100


@dataclass(frozen=True)
class _Known:
    trials: Sequence[TrialStatus] = ()
    observations: Sequence[Observation] = ()
    extended: int = 0


_NOTHING = _Known()


class Histories:
    """The problems of the studies that asked last. Trials that have not changed are the same
    observations in the next problem. One study is asked about by one thread at a time.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Known]
        self._known = OrderedDict()
        self._lock = threading.Lock()

    def problem(self, record: StudyRecord) -> Problem:
        """The problem of the next trial of a study."""
        uid, trials = record.key.uid, record.status.trials
        with self._lock:
            known = self._known.pop(uid, _NOTHING)
        extended = record.spec.extended  # only then the space may change
        if len(known.trials) > len(trials) or known.extended != extended:
            known = _NOTHING  # also what another server has written was read late
        before = (known.trials, known.observations)
        problem = problem_of(seeded(record), trials, len(trials), known=before)
        with self._lock:
            self._known[uid] = _Known(trials, problem.trials, extended)
            while len(self._known) > _MOST_STUDIES:
                self._known.popitem(last=False)
        return problem
