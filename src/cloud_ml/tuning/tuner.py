"""The server's side of the tuner: processes start when studies ask, and end when idle.

They keep nothing that counts. One that dies, or takes too long, loses no trial: the same question
to the next one has the same answer.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Mapping
from typing import Any

from cloud_ml.domain.studies.named_trials import check_trial
from cloud_ml.domain.studies.samplers import is_sampler
from cloud_ml.domain.studies.values import Parameters
from cloud_ml.errors import InvalidRequest, Unavailable
from cloud_ml.tuning import tuner_process
from cloud_ml.tuning.base import IMPORTANCE, Problem, document_of
from cloud_ml.tuning.known_studies import SentStudies
from cloud_ml.tuning.tuner_process import TunerProcess

_Lines = weakref.WeakValueDictionary[str, asyncio.Semaphore]
"""By organisation. What waits in one is not in the line of all."""


class Tuner:
    """Asks a tuner that has nothing to do. A further one starts only while all others answer, so
    a slow question holds up no other one.

    Args:
        user: The user and group id of the processes, where this one is root; 0: its own.
        memory_bytes: The address space that each may have.
        idle_s: One ends when it was asked nothing for so long.
        answer_s: It is killed when an answer, its start included, takes longer.
        processes: So many run, and answer a question each; further questions wait. The questions of
            one organisation leave one of them to others, if there are several.
    """

    def __init__(
        self,
        *,
        user: int = 0,
        memory_bytes: int = 2 << 30,
        idle_s: float = 60.0,
        answer_s: float = 20.0,
        processes: int = 3,
    ) -> None:
        self._user = user
        self._memory = memory_bytes
        self._idle_s = idle_s
        self._answer_s = answer_s
        self._free = asyncio.Semaphore(processes)
        self._analysis = asyncio.Semaphore(1)
        self._processes = processes
        self._most_of_one = max(1, processes - 1)
        self._questions: _Lines = weakref.WeakValueDictionary()
        self._analyses: _Lines = weakref.WeakValueDictionary()
        self._idle: dict[TunerProcess, asyncio.TimerHandle] = {}
        self._busy: set[TunerProcess] = set()

    @property
    def pids(self) -> list[int]:
        """The processes that run."""
        return [one.pid for one in (*self._idle, *self._busy) if one.pid is not None]

    async def suggest(
        self, algorithm: str, problem: Problem, *, org: str = "", study: str | None = None
    ) -> Parameters:
        """What the algorithm says, for a study of ``org``. A tuner that has been asked about the
        ``study`` is only told what is new.

        Raises:
            Unavailable: No tuner can be started, or it fails twice; with the reason.
        """
        # The variable keeps it: the table alone would let go of it at once.
        line = self._questions.setdefault(org, asyncio.Semaphore(self._most_of_one))
        async with line:
            answer = await self._ask(algorithm, problem, study)
        try:
            return check_trial(
                problem.space, answer["parameters"], "suggestion", problem.constraints
            )
        except (InvalidRequest, KeyError, AttributeError) as error:
            raise Unavailable(f"{algorithm} gave no parameters: {error}") from error

    async def importance(self, problem: Problem, *, org: str = "") -> Mapping[str, Any]:
        """How much each parameter matters: see ``numeric.importance``. One question of this kind at
        a time, as it takes seconds, and trials wait for the others.

        Raises:
            Unavailable: As for ``suggest``.
        """
        line = self._analyses.setdefault(org, asyncio.Semaphore(1))
        async with line, self._analysis:
            answer = await self._ask(IMPORTANCE, problem)
        found = answer.get("importance")
        if not isinstance(found, Mapping):
            raise Unavailable("the tuner gave no importance")
        return found

    async def close(self) -> None:
        """End all processes."""
        for timer in self._idle.values():
            timer.cancel()
        processes = [*self._idle, *self._busy]
        self._idle.clear()
        for process in processes:
            await process.close()

    async def _ask(
        self, algorithm: str, problem: Problem, study: str | None = None
    ) -> Mapping[str, Any]:
        def request(sent: SentStudies) -> Mapping[str, Any]:
            if study is None:
                return {"algorithm": algorithm, "problem": document_of(problem)}
            return {"algorithm": algorithm, **sent.question(study, problem)}

        async with self._free:
            process = self._take_process(_module_of(algorithm))
            try:
                answer = await process.ask(request, self._answer_s)
            finally:
                self._busy.discard(process)
                self._keep_idle(process)
        if "error" in answer:
            raise Unavailable(f"{algorithm} failed: {answer['error']}")
        return answer

    def _take_process(self, module: str) -> TunerProcess:
        """The process that was asked last, as it knows most; else a new one."""
        process = next((one for one in reversed(self._idle) if one.module == module), None)
        if process is not None:
            self._idle.pop(process).cancel()
        else:
            if self._idle and len(self._idle) + len(self._busy) >= self._processes:
                self._retire_oldest()
            process = TunerProcess(user=self._user, memory_bytes=self._memory, module=module)
        self._busy.add(process)
        return process

    def _keep_idle(self, process: TunerProcess) -> None:
        if process.pid is not None:
            timer = asyncio.get_running_loop().call_later(self._idle_s, self._retire, process)
            self._idle[process] = timer

    def _retire_oldest(self) -> None:
        process = next(iter(self._idle))
        self._idle.pop(process).cancel()
        process.retire()

    def _retire(self, process: TunerProcess) -> None:
        self._idle.pop(process, None)
        process.retire()


def _module_of(algorithm: str) -> str:
    """What the process has to run that is asked for an algorithm."""
    return tuner_process.OPTUNA_MODULE if is_sampler(algorithm) else tuner_process.MODULE
