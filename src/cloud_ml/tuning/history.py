"""What trials were like, made once for each: a study asks with all of its trials each time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from cloud_ml.domain.record_sizes import bytes_of
from cloud_ml.domain.studies.spec import StudyRecord, TrialStatus, seeded
from cloud_ml.settings.sizes import MIB
from cloud_ml.tuning.base import Observation, Problem, problem_of

_MOST_STUDIES, _MOST_BYTES = 100, 64 * MIB
"""So many studies are kept, and about so many bytes of parameters; the one that asked last always."""


@dataclass(frozen=True)
class _Known:
    trials: Sequence[TrialStatus] = ()
    observations: Sequence[Observation] = ()
    extended: int = 0
    size: int = 0


_NOTHING = _Known()


class Histories:
    """The problems of the studies that asked last. Trials that have not changed are the same
    observations in the next problem. One study is asked about by one thread at a time.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Known]
        self._known = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def problem(self, record: StudyRecord) -> Problem:
        """The problem of the next trial of a study."""
        uid, trials = record.key.uid, record.status.trials
        with self._lock:
            known = self._known.pop(uid, _NOTHING)
            self._size -= known.size
        extended = record.spec.extended  # only then the space may change
        if len(known.trials) > len(trials) or known.extended != extended:
            known = _NOTHING  # also what another server has written was read late
        before = (known.trials, known.observations)
        problem = problem_of(seeded(record), trials, len(trials), known=before)
        new = trials[len(known.trials) :]  # parameters of those before stay
        size = known.size + sum(bytes_of(trial.parameters) for trial in new)
        with self._lock:
            self._size += size - self._known.pop(uid, _NOTHING).size
            self._known[uid] = _Known(trials, problem.trials, extended, size)
            while len(self._known) > 1 and (
                len(self._known) > _MOST_STUDIES or self._size > _MOST_BYTES
            ):
                self._size -= self._known.popitem(last=False)[1].size
        return problem
