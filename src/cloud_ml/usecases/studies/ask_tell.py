"""Ask and tell: trials of a study for loops of its users. Each answer is durable before it is given."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace

from cloud_ml.domain.records import Event, EventType, find_changed_places
from cloud_ml.domain.studies import ask_tell
from cloud_ml.domain.studies.ranking import values_text
from cloud_ml.domain.studies.spec import STUDY, StudyRecord, StudyStatus, TrialState, TrialStatus
from cloud_ml.domain.studies.values import Parameters
from cloud_ml.domain.tenancy import Operation
from cloud_ml.errors import Conflict, StaleRevision, Unavailable
from cloud_ml.models.common import refuse
from cloud_ml.models.studies.ask_tell import (
    AskedTrial,
    AskTrial,
    ReportTrial,
    TellTrial,
    TrialAdvice,
)
from cloud_ml.settings.studies import StudySettings
from cloud_ml.state.base import Once, StateStore
from cloud_ml.tuning import qmc
from cloud_ml.tuning.algorithms import LIGHT, choose_algorithm
from cloud_ml.tuning.base import Problem
from cloud_ml.tuning.history import Histories
from cloud_ml.tuning.tuner import Tuner
from cloud_ml.usecases.access.identities import Identity
from cloud_ml.usecases.access.permissions import permit
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.offload import Offload
from cloud_ml.usecases.studies.studies import StudyResources, shown_trial

_LONGEST_KEY, _TRIES = 100, 50
Change = Callable[[StudyRecord], StudyStatus]
"""The next status of a study; the very status of the record if nothing changes."""


@dataclass(frozen=True)
class _Question:
    """What the tuner is asked."""

    org: str
    study: str
    algorithm: str
    problem: Problem


@dataclass(frozen=True)
class _Suggestion:
    """The parameters of the trial of that number, and why they are not those of the algorithm."""

    number: int
    parameters: Parameters
    failure: str = ""


@dataclass(frozen=True)
class _Request:
    """Who asks for which study. ``once`` is used up by what answers it."""

    caller: Identity
    name: str
    once: Once | None


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
        settings: The limits.
    """

    def __init__(
        self,
        store: StateStore,
        studies: StudyResources,
        tuner: Tuner,
        clock: Clock,
        offload: Offload,
        *,
        settings: StudySettings,
    ) -> None:
        self._store = store
        self._studies = studies
        self._tuner = tuner
        self._clock = clock
        self._offload = offload
        self._most_reports = settings.reports_per_study
        self._histories = Histories()
        self._ask_locks: _Locks = weakref.WeakValueDictionary()
        """One trial of a study is chosen at a time here: others would be chosen twice."""
        self._changes: _Locks = weakref.WeakValueDictionary()
        """One change of a study is written at a time here. Trials are told while one is chosen."""

    async def ask(
        self, caller: Identity, name: str, ask: AskTrial, once: Once | None
    ) -> AskedTrial:
        """The next trial, or the one that this key has got already. What it tells of another
        trial is noted before, as by ``tell``.

        Raises:
            NotFound: There is no such study, or not the trial that is told of.
            Conflict: Its trials are jobs, or the trial that is told of has ended otherwise.
            InvalidRequest: The key is wrong, or what is told.
        """
        if not 0 < len(ask.key) <= _LONGEST_KEY:
            raise refuse("key", ask.key, f"a text of 1 to {_LONGEST_KEY} characters")
        request, suggestion = _Request(caller, name, once), None
        async with _lock(self._ask_locks, request):
            for _ in range(_TRIES):
                async with _lock(self._changes, request):
                    step = await self._offload(self._next_trial, request, ask, suggestion)
                if isinstance(step, AskedTrial):
                    return step
                suggestion = await self._suggest(step)
        raise _busy(name)

    async def tell(
        self, caller: Identity, name: str, outcome: TellTrial, once: Once | None
    ) -> None:
        """Note how a trial has ended. What was told already is success."""
        await self._change(caller, name, lambda record: _end_trial(record, outcome), once)

    async def report(
        self, caller: Identity, name: str, reported_value: ReportTrial, once: Once | None
    ) -> TrialAdvice:
        """Note a value of a trial that runs. Returns whether it should end now."""
        at = int(self._clock().timestamp() * 1000)

        def change(record: StudyRecord) -> StudyStatus:
            return ask_tell.report_value(
                record,
                reported_value.number,
                reported_value.step,
                reported_value.value,
                at,
                most=self._most_reports,
            )

        status = await self._change(caller, name, change, once)
        why = status.trials[reported_value.number].stopping
        return TrialAdvice(stop=bool(why), reason=why)

    async def _change(
        self, caller: Identity, name: str, change: Change, once: Once | None
    ) -> StudyStatus:
        request = _Request(caller, name, once)
        async with _lock(self._changes, request):
            return await self._offload(self._write, request, change)

    async def _suggest(self, question: _Question) -> _Suggestion:
        problem = question.problem
        try:
            found = await self._tuner.suggest(
                question.algorithm, problem, org=question.org, study=question.study
            )
        except Unavailable as error:
            why = f"trial {problem.number} is a point of qmc instead: {error.message}"
            return _Suggestion(problem.number, qmc.suggest(problem), why)
        return _Suggestion(problem.number, found)

    def _next_trial(
        self, request: _Request, ask: AskTrial, suggestion: _Suggestion | None
    ) -> AskedTrial | _Question:
        """The trial, new if need be. Or what is to be asked of the tuner first, whose answer may know
        a value less than there are by then. Blocking.
        """
        for _ in range(_TRIES):
            record = self._begin(request)
            with contextlib.suppress(StaleRevision):
                return self._give_trial(request, record, ask, suggestion)
        raise _busy(request.name)

    def _give_trial(
        self, request: _Request, record: StudyRecord, ask: AskTrial, suggestion: _Suggestion | None
    ) -> AskedTrial | _Question:
        """The same for the study as it was read.

        Raises:
            StaleRevision: It has changed since.
        """
        ended = record.status if ask.tell is None else _end_trial(record, ask.tell)
        study = replace(record, status=ended)
        known, why = ask_tell.trial_with(ended, ask.key), ask_tell.why_none(study)
        if known is not None or why:
            self._save(request, record, ended)
            shown = None if known is None else shown_trial(study, known)
            return AskedTrial(trial=shown, reason="" if shown else why)
        number = len(ended.trials)
        if suggestion is None or suggestion.number != number:
            chosen_one = self._choose(study)
            if isinstance(chosen_one, _Question):
                # What was told may have taken hours: it does not wait for the tuner.
                self._save(replace(request, once=None), record, ended)
                return chosen_one
            suggestion = chosen_one
        status = ask_tell.add_trial(study, ask.key, suggestion.parameters)
        made = self._save(request, record, status, suggestion.failure)
        return AskedTrial(trial=shown_trial(made, made.status.trials[number]))

    def _choose(self, record: StudyRecord) -> _Suggestion | _Question:
        """The parameters of the next trial, or what the tuner is to be asked."""
        number = len(record.status.trials)
        if (named := ask_tell.named_next(record)) is not None:
            return _Suggestion(number, named)
        problem = self._histories.problem(record)
        algorithm = choose_algorithm(record.spec.algorithm, problem)
        if (light := LIGHT.get(algorithm)) is not None:
            return _Suggestion(number, light(problem))
        return _Question(record.key.org, record.key.uid, algorithm, problem)

    def _write(self, request: _Request, change: Change) -> StudyStatus:
        """Change a study. Blocking."""
        for _ in range(_TRIES):
            record = self._begin(request)
            with contextlib.suppress(StaleRevision):
                return self._save(request, record, change(record)).status
        raise _busy(request.name)

    def _begin(self, request: _Request) -> StudyRecord:
        """The study that is meant."""
        permit(request.caller, Operation.RUN_JOBS)
        record = self._studies.find(request.caller.org, request.name)
        if record.delete_requested_at is not None:
            raise Conflict(f"{record.key.name} is being deleted", field="name")
        ask_tell.check_local(record)
        return record

    def _save(
        self, request: _Request, record: StudyRecord, status: StudyStatus, failure: str = ""
    ) -> StudyRecord:
        """Commit a status, with what is said about it. ``failure`` is that of the tuner.

        Raises:
            StaleRevision: The study has changed since it was read.
        """
        if status is record.status:
            self._use_up(request, record)
            return record
        events = _news(record, status, self._clock)
        if failure:
            events.append(Event(self._clock(), "TunerFailed", failure, EventType.WARNING))
        return self._store.commit_status(
            STUDY,
            record.key.uid,
            status,
            expected_revision=record.revision,
            fence=None,
            now=self._clock(),
            events=events,
            once=request.once,
        )

    def _use_up(self, request: _Request, record: StudyRecord) -> None:
        """Note a request that changes nothing: its key, number or step came before."""
        if request.once is not None:
            uid, now = record.key.uid, self._clock()
            self._store.change_spec(STUDY, uid, lambda spec: spec, now=now, once=request.once)


_Locks = weakref.WeakValueDictionary[tuple[str, str], asyncio.Lock]


def _lock(locks: _Locks, request: _Request) -> asyncio.Lock:
    # The weak dictionary drops a lock that is no longer in use, so ended studies leave none
    # behind.
    return locks.setdefault((request.caller.org, request.name), asyncio.Lock())


def _busy(name: str) -> Unavailable:
    return Unavailable(f"{name} changes all the time; try again")


def _end_trial(record: StudyRecord, outcome: TellTrial) -> StudyStatus:
    if outcome.value is not None and outcome.values:
        raise refuse("values", outcome.values, "either value or values")
    values = outcome.values or ([] if outcome.value is None else [outcome.value])
    return ask_tell.end_trial(record, outcome.number, outcome.state, values, outcome.message)


def _news(record: StudyRecord, status: StudyStatus, clock: Clock) -> list[Event]:
    """What is said about the trial that has ended."""
    before, after = record.status.trials, status.trials
    return [
        _event_of(record, after[number], clock)
        for number in find_changed_places(before, after)
        if number < len(before) and after[number].state is not before[number].state
    ]


def _event_of(record: StudyRecord, trial: TrialStatus, clock: Clock) -> Event:
    name = f"trial {trial.number}"
    if trial.state is TrialState.COMPLETED:
        message = f"{name} completed with {values_text(record.spec, trial)}"
        return Event(clock(), "TrialCompleted", message)
    kind = EventType.NORMAL if trial.state is TrialState.EARLY_STOPPED else EventType.WARNING
    return Event(clock(), f"Trial{trial.state}", f"{name} is {trial.state}: {trial.message}", kind)
