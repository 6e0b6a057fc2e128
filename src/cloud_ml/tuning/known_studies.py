"""What a tuner knows of studies, so that a question carries only what is new.

Both sides keep the same few studies. The tuner checks that it has what a question builds on. If it
has not, it says so and is sent everything: a question has the same answer either way.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cloud_ml.domain.record_sizes import bytes_of
from cloud_ml.domain.records import find_changed_places
from cloud_ml.settings.sizes import MIB
from cloud_ml.tuning.base import Problem, document_of, problem_from

MOST_STUDIES, _MOST_BYTES = 32, 64 * MIB
"""So many studies, and on the server's side about so many bytes of parameters."""
UNKNOWN = {"unknown": True}
"""The answer to a question that builds on what the tuner does not have."""


@dataclass(frozen=True)
class _Sent:
    problem: Problem
    serial: int
    size: int = 0


class SentStudies:
    """The server's side: what was sent to one tuner. Trials are compared by identity, so whoever
    asks keeps its observations (``Histories``).
    """

    def __init__(self) -> None:
        self._sent: OrderedDict[str, _Sent] = OrderedDict()

    def question(self, study: str, problem: Problem) -> dict[str, Any]:
        """What is to be sent for a problem of a study. It counts as sent."""
        before = self._sent.pop(study, None)
        serial = 1 if before is None else before.serial + 1
        known = 0 if before is None else len(before.problem.trials)
        size = 0 if before is None else before.size
        size += sum(bytes_of(trial.parameters) for trial in problem.trials[known:])
        if before is None:
            size += sum(bytes_of(trial.parameters) for trial in problem.prior)
        self._sent[study] = _Sent(problem, serial, size)
        while len(self._sent) > MOST_STUDIES or self._is_too_large():
            self._sent.popitem(last=False)
        if before is None or len(before.problem.trials) > len(problem.trials):
            return {"study": study, "serial": serial, "problem": document_of(problem)}
        places = find_changed_places(before.problem.trials, problem.trials)
        same_space = problem.space is before.problem.space
        same_prior = problem.prior == before.problem.prior
        new = replace(
            problem,
            trials=[problem.trials[place] for place in places],
            space=() if same_space else problem.space,
            prior=() if same_prior else problem.prior,
        )
        return {
            "study": study,
            "serial": serial,
            "places": places,
            "same_space": same_space,
            "same_prior": same_prior,
            "problem": document_of(new),
        }

    def _is_too_large(self) -> bool:
        return len(self._sent) > 1 and sum(one.size for one in self._sent.values()) > _MOST_BYTES

    def forget(self, study: str) -> None:
        """The tuner does not have it."""
        self._sent.pop(study, None)


class ReceivedStudies:
    """The tuner's side: the problems that were asked last."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Sent] = OrderedDict()

    def problem(self, request: Mapping[str, Any]) -> Problem | None:
        """The problem of a request; ``None`` if it builds on what is not here."""
        problem, study = problem_from(request["problem"]), request.get("study")
        if study is None:
            return problem
        before = self._known.pop(study, None)
        if "places" in request:
            if before is None or before.serial + 1 != request["serial"]:
                return None
            trials = list(before.problem.trials)
            for place, trial in zip(request["places"], problem.trials, strict=True):
                trials[place : place + 1] = [trial]
            space = before.problem.space if request["same_space"] else problem.space
            prior = before.problem.prior if request["same_prior"] else problem.prior
            problem = replace(problem, trials=tuple(trials), space=space, prior=prior)
        self._known[study] = _Sent(problem, request["serial"])
        while len(self._known) > MOST_STUDIES:
            self._known.popitem(last=False)
        return problem
