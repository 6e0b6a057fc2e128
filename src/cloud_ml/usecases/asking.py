"""Ask and tell: trials of a study for loops of its users. Each answer is durable before it is given."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from dataclasses import replace

from cloud_ml.domain.records import Event, EventType
from cloud_ml.domain.studies import asking
from cloud_ml.domain.studies.spec import (
    STUDY,
    StudyRecord,
    StudyStatus,
    TrialState,
    TrialStatus,
    seeded,
    values_text,
)
from cloud_ml.domain.studies.values import Parameters
from cloud_ml.domain.tenancy import Operation
from cloud_ml.errors import Conflict, StaleRevision, Unavailable
from cloud_ml.models.asking import (
    AskedTrial,
    AskTrial,
    ReportTrial,
    TellTrial,
    TrialAdvice,
)
from cloud_ml.models.common import refuse
from cloud_ml.state.base import Once, StateStore
from cloud_ml.tuning import qmc
from cloud_ml.tuning.algorithms import LIGHT, chosen
from cloud_ml.tuning.base import problem_of
from cloud_ml.tuning.tuner import Tuner
from cloud_ml.usecases.access.identities import Identity
from cloud_ml.usecases.access.permissions import permit
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.offload import Offload
from cloud_ml.usecases.studies import StudyResources, shown_trial

_LONGEST_KEY, _TRIES = 100, 50
Change = Callable[[StudyRecord], StudyStatus | None]
"""The next status of a study; ``None`` if nothing changes."""


class AskTell:
    """Gives trials out, and takes their values.

    Several servers may do so for one study: a status is written only where nobody has written since
    it was read. Belongs to one event loop.

    Args:
        store: Keeps the studies.
        studies: Finds them.
        tuner: Chooses parameters where that takes numpy and scipy.
        clock: The time.
        offload: Runs the calls of the store.
    """

    def __init__(
        self,
        store: StateStore,
        studies: StudyResources,
        tuner: Tuner,
        clock: Clock,
        offload: Offload,
    ) -> None:
        self._store = store
        self._studies = studies
        self._tuner = tuner
        self._clock = clock
        self._offload = offload
        self._locks: weakref.WeakValueDictionary[tuple[str, str], asyncio.Lock]
        self._locks = weakref.WeakValueDictionary()
        """One change of a study at a time here: others would be made twice."""

    async def ask(
        self, caller: Identity, name: str, wish: AskTrial, once: Once | None
    ) -> AskedTrial:
        """The next trial, or the one that this key has got already.

        Raises:
            NotFound: There is no such study.
            Conflict: Its trials are jobs.
        """
        if not 0 < len(wish.key) <= _LONGEST_KEY:
            raise refuse("key", wish.key, f"a text of 1 to {_LONGEST_KEY} characters")
        async with self._lock(caller, name):
            record = await self._offload(self._begin, caller, name, once)
            for _ in range(_TRIES):
                if (known := asking.trial_with(record.status, wish.key)) is not None:
                    return AskedTrial(trial=shown_trial(record, known))
                if why := asking.why_none(record):
                    return AskedTrial(reason=why)
                parameters, problem = await self._parameters(record)
                status = asking.asked(record, wish.key, parameters)
                events = [Event(self._clock(), "TunerFailed", problem, EventType.WARNING)]
                try:
                    await self._offload(self._commit, record, status, events if problem else [])
                except StaleRevision:
                    record = await self._offload(self._find, caller, record.key.uid)
                    continue
                made = replace(record, status=status)
                return AskedTrial(trial=shown_trial(made, status.trials[-1]))
        raise Unavailable(f"{name} changes all the time; ask again")

    async def tell(self, caller: Identity, name: str, said: TellTrial, once: Once | None) -> None:
        """Note how a trial has ended. What was told already is success."""
        if said.value is not None and said.values:
            raise refuse("values", said.values, "either value or values")
        values = said.values or ([] if said.value is None else [said.value])

        def change(record: StudyRecord) -> StudyStatus | None:
            return asking.told(record, said.number, said.state, values, said.message)

        await self._change(caller, name, change, once)

    async def report(
        self, caller: Identity, name: str, said: ReportTrial, once: Once | None
    ) -> TrialAdvice:
        """Note a value of a trial that runs. Returns whether it should end now."""
        at = int(self._clock().timestamp() * 1000)

        def change(record: StudyRecord) -> StudyStatus | None:
            status = asking.reported(record, said.number, said.step, said.value, at)
            return None if status == record.status else status

        status = await self._change(caller, name, change, once)
        why = status.trials[said.number].stopping
        return TrialAdvice(stop=bool(why), reason=why)

    async def _change(
        self, caller: Identity, name: str, change: Change, once: Once | None
    ) -> StudyStatus:
        async with self._lock(caller, name):
            record = await self._offload(self._begin, caller, name, once)
            for _ in range(_TRIES):
                if (status := change(record)) is None:
                    return record.status
                events = _news(record, status, self._clock)
                try:
                    await self._offload(self._commit, record, status, events)
                except StaleRevision:
                    record = await self._offload(self._find, caller, record.key.uid)
                    continue
                return status
        raise Unavailable(f"{name} changes all the time; try again")

    async def _parameters(self, record: StudyRecord) -> tuple[Parameters, str]:
        """The parameters of the next trial; and why they are not those of the algorithm."""
        if (named := asking.named_next(record)) is not None:
            return named, ""
        trials = record.status.trials
        problem = problem_of(seeded(record), trials, len(trials))
        algorithm = chosen(record.spec.algorithm, problem)
        if (light := LIGHT.get(algorithm)) is not None:
            return await self._offload(light, problem), ""
        try:
            return await self._tuner.suggest(algorithm, problem), ""
        except Unavailable as error:
            why = f"trial {problem.number} is a point of qmc instead: {error.message}"
            return qmc.suggest(problem), why

    def _begin(self, caller: Identity, name: str, once: Once | None) -> StudyRecord:
        """The study that is meant. Uses up what makes the request happen once: its own key, number
        or step makes a repeated one harmless.
        """
        permit(caller, Operation.RUN_JOBS)
        record = self._find(caller, name)
        asking.check_local(record)
        if once is not None:
            uid, now = record.key.uid, self._clock()
            return self._store.change_spec(STUDY, uid, lambda spec: spec, now=now, once=once)
        return record

    def _find(self, caller: Identity, name: str) -> StudyRecord:
        record = self._studies.find(caller.org, name)
        if record.delete_requested_at is not None:
            raise Conflict(f"{record.key.name} is being deleted", field="name")
        return record

    def _commit(self, record: StudyRecord, status: StudyStatus, events: list[Event]) -> None:
        self._store.commit_status(
            STUDY,
            record.key.uid,
            status,
            expected_revision=record.revision,
            fence=None,
            now=self._clock(),
            events=events,
        )

    def _lock(self, caller: Identity, name: str) -> asyncio.Lock:
        return self._locks.setdefault((caller.org, name), asyncio.Lock())


def _news(record: StudyRecord, status: StudyStatus, clock: Clock) -> list[Event]:
    """What is said about the trial that has ended."""
    return [
        _said(record, trial, clock)
        for before, trial in zip(record.status.trials, status.trials, strict=True)
        if trial.state is not before.state
    ]


def _said(record: StudyRecord, trial: TrialStatus, clock: Clock) -> Event:
    name = f"trial {trial.number}"
    if trial.state is TrialState.COMPLETED:
        said = f"{name} completed with {values_text(record.spec, trial)}"
        return Event(clock(), "TrialCompleted", said)
    kind = EventType.NORMAL if trial.state is TrialState.EARLY_STOPPED else EventType.WARNING
    return Event(clock(), f"Trial{trial.state}", f"{name} is {trial.state}: {trial.message}", kind)
