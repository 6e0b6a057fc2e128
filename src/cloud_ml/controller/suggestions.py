"""What the tuner suggests for studies: asked beside the passes, so that no study waits for another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from cloud_ml import failpoints
from cloud_ml.domain.records import Key
from cloud_ml.domain.studies.spec import StudyRecord
from cloud_ml.domain.studies.values import Suggestion
from cloud_ml.errors import Unavailable
from cloud_ml.tuning import qmc
from cloud_ml.tuning.algorithms import choose_algorithm
from cloud_ml.tuning.base import Problem
from cloud_ml.tuning.history import Histories
from cloud_ml.tuning.tuner import Tuner

_PATIENCE_S = 1.0
"""A trial waits so long for a suggestion that knows all values. Then it takes the one that was made
ahead, while trials were running.
"""


@dataclass(frozen=True)
class _Answer:
    """A suggestion, and the problem that it answers."""

    problem: Problem
    suggestion: Suggestion


class Suggestions:
    """Asks the tuner for each study on its own: one question of a study at a time.

    While all places of a study are taken, the question for its next trial is asked ahead. That has
    the tuner started and fitted when a place is free. Belongs to one event loop.

    Args:
        tuner: Answers.
        wake: Called with the uid of a study when there is an answer for it.
    """

    def __init__(self, tuner: Tuner, wake: Callable[[str], None]) -> None:
        self._tuner = tuner
        self._wake = wake
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._histories = Histories()
        self._answers: dict[str, _Answer] = {}
        self._waiting: dict[str, tuple[int, float]] = {}
        """The trial that waits for parameters, and since when, by the uid of its study."""

    async def serve(self) -> None:
        """Until it is cancelled; then no question is open any more."""
        try:
            await asyncio.Event().wait()
        finally:
            tasks = list(self._tasks.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def ready(self, record: StudyRecord) -> dict[int, Suggestion]:
        """The suggestion for the next trial of a study, by its number, if there is one."""
        uid, number = record.key.uid, len(record.status.trials)
        if (answer := self._answers.get(uid)) is None:
            return {}
        if answer.problem.number != number:
            self.forget(uid)
            return {}
        waiting, since = self._waiting.get(uid, (number, self._now()))
        problem = self._problem(record)
        fits = answer.problem.space == problem.space
        if not fits or answer.problem.constraints != problem.constraints:
            self.forget(uid)  # of the space as it was before it changed
            return {}
        late = waiting == number and self._now() - since >= _PATIENCE_S
        if late or answer.problem == problem:
            return {number: answer.suggestion}
        return {}

    def ask(self, record: StudyRecord, *, ahead: bool) -> None:
        """Ask for the next trial of a study, unless that is being asked or answered."""
        uid, problem = record.key.uid, self._problem(record)
        if not ahead and self._waiting.get(uid, (-1,))[0] != problem.number:
            self._waiting[uid] = (problem.number, self._now())
            asyncio.get_running_loop().call_later(_PATIENCE_S, self._wake, uid)
        answer = self._answers.get(uid)
        if uid in self._tasks or (answer is not None and answer.problem == problem):
            return
        name = choose_algorithm(record.spec.algorithm, problem)
        self._tasks[uid] = asyncio.create_task(self._ask(record.key, name, problem))

    def forget(self, uid: str) -> None:
        """The study has what it asked for, or wants nothing any more."""
        self._answers.pop(uid, None)
        self._waiting.pop(uid, None)

    async def _ask(self, key: Key, name: str, problem: Problem) -> None:
        uid = key.uid
        failpoints.here("study.suggest.before")
        try:
            found = await self._tuner.suggest(name, problem, org=key.org, study=uid)
            suggestion = Suggestion(found)
        except Unavailable as error:
            why = f"trial {problem.number} is a point of qmc instead: {error.user_message}"
            suggestion = Suggestion(qmc.suggest(problem), why)
        finally:
            self._tasks.pop(uid, None)
        failpoints.here("study.suggest.after")
        self._answers[uid] = _Answer(problem, suggestion)
        self._wake(uid)

    def _problem(self, record: StudyRecord) -> Problem:
        return self._histories.problem(record)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
