"""Studies: their trials are submitted, followed, and stopped when too many fail."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from cloud_ml import failpoints
from cloud_ml.controller.results.trial_checkpoints import TrialCheckpointRemoval
from cloud_ml.controller.runtime.changes import WatchedKind
from cloud_ml.controller.runtime.passes import begin_step
from cloud_ml.controller.runtime.queue import KeyedQueue
from cloud_ml.controller.runtime.reconciler import ReconcileResult
from cloud_ml.controller.runtime.record_controller import RecordReconciler, RecordRules
from cloud_ml.controller.runtime.term import ControllerTasks, Term
from cloud_ml.controller.suggestions import Suggestions
from cloud_ml.domain.jobs.kind import TRAIN_JOB, TrainJobRecord
from cloud_ml.domain.records import Decision, ParentRef
from cloud_ml.domain.studies.decide import (
    AskTuner,
    ObservedTrials,
    RemoveCheckpoints,
    StartTrial,
    StopTrial,
    StudyAction,
    StudyDecision,
    TrialJob,
    decide,
)
from cloud_ml.domain.studies.kept_checkpoints import find_superfluous
from cloud_ml.domain.studies.spec import (
    AFTER_END_TAG,
    STUDY,
    ParametersAs,
    StudyPhase,
    StudyRecord,
    StudySpec,
    StudyStatus,
    TrialStatus,
    trial_job,
    trial_name,
)
from cloud_ml.domain.studies.stopping import Curve
from cloud_ml.domain.tenancy import Role
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.engines.abilities import LogView
from cloud_ml.engines.base import Capacity, Engine
from cloud_ml.engines.gang import GangKey
from cloud_ml.errors import Conflict, NotFound, RequestError
from cloud_ml.state.base import Fence, StateStore
from cloud_ml.state.matching import Match
from cloud_ml.tuning.algorithms import suggest
from cloud_ml.tuning.tuner import Tuner
from cloud_ml.usecases.access.identities import Identities, Identity
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.jobs.checkpoint_references import CheckpointReferences
from cloud_ml.usecases.jobs.checkpoints import Checkpoints
from cloud_ml.usecases.jobs.train_jobs import TrainJobs
from cloud_ml.usecases.offload import Offload
from cloud_ml.usecases.studies.reported_values import Objectives
from cloud_ml.usecases.studies.trial_curves import TrialCurves


class StudyController:
    """Moves studies by their pure decision.

    Args:
        store: Keeps the records.
        jobs: Submits and stops the jobs of trials, as their study's owner would.
        identities: Whose they are.
        objectives: What trials reported.
        references: Knows who refers to checkpoints of trials.
        checkpoints: Removes those that are not kept.
        engine: How large a job may be.
        tuner: Chooses parameters where that takes numpy and scipy.
        clock: The time.
        offload: Runs the calls of the store.
        workers: How many studies are worked on at once.
    """

    def __init__(
        self,
        *,
        store: StateStore,
        jobs: TrainJobs,
        identities: Identities,
        objectives: Objectives,
        references: CheckpointReferences,
        checkpoints: Checkpoints,
        engine: Engine,
        tuner: Tuner,
        clock: Clock,
        offload: Offload,
        workers: int = 2,
    ) -> None:
        self._store = store
        self._trials = Trials(store, jobs, identities, objectives)
        self._references = references
        self._checkpoints = checkpoints
        self._engine = engine
        self._tuner = tuner
        self._clock = clock
        self._offload = offload
        self._workers = workers
        self._waiting = WaitingStudies()

    def hear(self, job: TrainJobRecord) -> bool:
        """Look at the study of a job that has reported, if it stops trials early. Returns whether
        it does.
        """
        return self._waiting.hear(job)

    async def begin(self, term: Term) -> ControllerTasks:
        """See ``ResourceController``."""
        queue = KeyedQueue()
        suggestions = Suggestions(self._tuner, queue.add)
        removal = TrialCheckpointRemoval(
            self._store,
            self._references,
            self._checkpoints,
            offload=self._offload,
            fence=term.fence,
            wake=queue.add,
        )
        self._waiting.begin(queue)
        reconciler = StudyReconciler(
            self._store,
            self._clock,
            self._offload,
            term.fence,
            trials=self._trials,
            engine=self._engine,
            suggestions=suggestions,
            removal=removal,
            waiting=self._waiting,
        )
        unfinished = [phase for phase in StudyPhase if not phase.over]
        return ControllerTasks(
            followed=[WatchedKind(STUDY, queue, unfinished, revived=Match(tags=(AFTER_END_TAG,)))],
            tasks=[
                *[term.pool(queue, reconciler).work] * self._workers,
                suggestions.serve,
                removal.serve,
            ],
        )


class WaitingStudies:
    """The studies that wait for values of their trials, to stop some of them early.

    A study that reads curves for long is looked at less often: that takes a share of a processor,
    however much its trials report. Belongs to one event loop.
    """

    def __init__(self) -> None:
        self._queue: KeyedQueue | None = None
        self._pauses: dict[str, float] = {}

    def begin(self, queue: KeyedQueue) -> None:
        """A term begins: this is its queue."""
        self._queue = queue
        self._pauses.clear()

    def note(self, record: StudyRecord, took_s: float) -> None:
        """Note that the curves of a study were read, and how long that took."""
        if record.spec.stopper is None or record.spec.local or record.status.phase.over:
            self._pauses.pop(record.key.uid, None)
        else:
            self._pauses[record.key.uid] = _SHARE * took_s

    def hear(self, job: TrainJobRecord) -> bool:
        """See ``StudyController.hear``."""
        uid = job.parent.uid if job.parent is not None else ""
        if self._queue is None or uid not in self._pauses:
            return False
        self._queue.add_after(uid, self._pauses[uid])
        return True


class StudyReconciler(RecordReconciler[StudySpec, StudyStatus, StudyAction]):
    """One look at a study: its record and the jobs of its trials."""

    def __init__(
        self,
        store: StateStore,
        clock: Clock,
        offload: Offload,
        fence: Fence,
        *,
        trials: Trials,
        engine: Engine,
        suggestions: Suggestions,
        removal: TrialCheckpointRemoval,
        waiting: WaitingStudies,
    ) -> None:
        super().__init__(_RULES, store, clock, offload, fence)
        self._trials = trials
        self._engine = engine
        self._suggestions = suggestions
        self._removal = removal
        self._waiting = waiting
        self._last_looks: dict[str, tuple[float, int]] = {}
        """When local studies that go on were looked at, and their revision then, by their uid."""
        self._refused: dict[str, dict[int, str]] = {}
        """Why jobs of trials were refused, until the study says so, by its uid and their number."""

    async def reconcile(self, uid: str) -> ReconcileResult:
        """See ``Reconciler``. Loops change a local study some hundred times a second, and all that
        is to be found is its end: it is looked at now and then.
        """
        at, revision = self._last_looks.get(uid, (-math.inf, 0))
        rest = at + _LOCAL_PAUSE_S - time.monotonic()
        if rest > 0:
            return ReconcileResult(revision, self._clock() + timedelta(seconds=rest))
        self._last_looks.pop(uid, None)
        result = await super().reconcile(uid)
        if result == ReconcileResult():  # it is gone
            self._removal.forget(uid)
        return result

    async def decide(self, record: StudyRecord) -> StudyDecision:
        """See ``RecordReconciler``."""
        if record.spec.local:  # its loops say what became of trials
            decision = decide(record, ObservedTrials(), self._clock(), suggest)
            if decision.status is None and not record.status.phase.over:
                self._last_looks[record.key.uid] = time.monotonic(), record.revision
            return decision
        begin_step("look at the trials")
        jobs = await self._offload.long(record.key.org, self._trials.running_jobs, record)
        jobs = {number: await self._with_last_line(job) for number, job in jobs.items()}
        uid = record.key.uid
        began = time.monotonic()
        curves = await self._offload.long(record.key.org, self._trials.curves, record)
        self._waiting.note(record, time.monotonic() - began)
        suggested = self._suggestions.ready(record)
        removed = self._removal.take_found(record)
        observed = ObservedTrials(jobs, self._refused.pop(uid, {}), suggested, curves, removed)
        return decide(record, observed, self._clock(), suggest)

    async def _with_last_line(self, job: TrialJob) -> TrialJob:
        """The job with the last line that it printed, if it ended well without any metric."""
        if not job.succeeded or job.value is not None or job.reported:
            return job
        return replace(job, last_line=await last_line(self._engine, job.uid, job.attempt))

    async def finish(self, record: StudyRecord) -> bool:
        """See ``RecordReconciler``. Checkpoints that are not kept are removed, as long as the jobs of
        trials tell where they are. What cannot be removed in a minute stays.
        """
        requested_at = record.delete_requested_at
        late = requested_at is None or self._clock() > requested_at + _FINISH_WITHIN
        superfluous = self._removal.find_left(record, find_superfluous(record.spec, record.status))
        if late or not superfluous:
            return False
        begin_step("remove checkpoints that are not kept")
        self._removal.begin(record, superfluous)
        return True

    async def act(self, record: StudyRecord, actions: Sequence[StudyAction]) -> bool:
        """See ``RecordReconciler``. A refusal is news, looked at at once."""
        refused: dict[int, str] = {}
        for action in actions:
            begin_step(f"perform {type(action).__name__}")
            match action:
                case StopTrial():
                    failpoints.here("study.stop.before")
                    await self._offload(self._trials.stop, record, action.number)
                    failpoints.here("study.stop.after")
                case StartTrial():
                    failpoints.here("study.start.before")
                    capacity = await self._engine.capacity()
                    why = await self._offload(self._trials.start, record, action.trial, capacity)
                    failpoints.here("study.start.after")
                    if why:
                        refused[action.trial.number] = why
                case RemoveCheckpoints():
                    self._removal.begin(record, action.numbers)
                case AskTuner():
                    self._suggestions.ask(record, ahead=action.ahead)
        if refused:
            self._refused[record.key.uid] = refused
        return bool(refused)


_FINISH_WITHIN = timedelta(minutes=1)
_SHARE = 3
"""Curves are read again after so many times as long as that took."""
_LOCAL_PAUSE_S = 0.2
"""The least time between two looks at a local study."""
_OF_THE_CODE = LogView(installation=False)
_LINE_BYTES, _LINE_CHARACTERS = 4096, 60
_LOOK_S = 1.0
"""One study looks so long for values of its trials at once, and at one value at least."""
_RULES: RecordRules[StudySpec, StudyStatus, StudyAction] = RecordRules(
    STUDY,
    [phase for phase in StudyPhase if not phase.over],
    lambda _record, _now: Decision(),
    children=[TRAIN_JOB],
)


async def last_line(engine: Engine, uid: str, attempt: int) -> str:
    """The last line that the code of an attempt printed, cut; empty if it printed none."""
    streams = [stream for stream in await engine.log_streams(uid) if stream[0] == attempt]
    if not streams:
        return ""
    key, read = GangKey(uid, attempt), b""
    async for chunk in engine.logs(key, streams[-1][1], lines=1, view=_OF_THE_CODE):
        read += chunk
        if len(read) > _LINE_BYTES:
            break
    text = read[:_LINE_BYTES].decode("utf-8", "replace").strip()
    printable = "".join(each if each.isprintable() else " " for each in text)
    return printable if len(printable) <= _LINE_CHARACTERS else printable[:_LINE_CHARACTERS] + "…"


class Trials:
    """The jobs of studies' trials. Blocking."""

    def __init__(
        self,
        store: StateStore,
        jobs: TrainJobs,
        identities: Identities,
        objectives: Objectives,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._jobs = jobs
        self._identities = identities
        self._objectives = objectives
        self._curves = TrialCurves(store)
        self._monotonic = monotonic

    def running_jobs(self, record: StudyRecord) -> Mapping[int, TrialJob]:
        """The jobs of the trials that run, by their number.

        It may take long to find the value of one. Other trials that ended are then looked at
        later, as if they ran: a pass that takes too long is dropped with all that it found.
        """
        found: dict[int, TrialJob] = {}
        if record.spec.local:
            return found
        late = self._monotonic() + _LOOK_S
        has_value = False
        for trial in record.status.running:
            name = trial_name(record.key.name, trial.number)
            job = self._store.find(TRAIN_JOB, record.key.org, name)
            if job is not None and job.parent == _reference(record):
                over = job.status.phase.terminal
                wait = over and has_value and self._monotonic() > late
                found[trial.number] = TrialJob() if wait else self._look(job, record.spec)
                has_value = has_value or over
        return found

    def curves(self, record: StudyRecord) -> Mapping[int, Curve]:
        """What trials have reported so far, of a study that stops some of them early."""
        stopper, status = record.spec.stopper, record.status
        if stopper is None or record.spec.local or status.phase.over or not status.running:
            self._curves.forget(record.key.uid)
            return {}
        return self._curves.of(record, stopper)

    def _look(self, job: TrainJobRecord, spec: StudySpec) -> TrialJob:
        status = job.status
        if not status.phase.terminal:
            return TrialJob(waits=status.phase is Phase.QUEUED)
        succeeded = status.phase is Phase.SUCCEEDED
        last = [self._objectives.last(job, one.metric) for one in spec.objectives]
        value, step = last[0] or (None, None)
        missing = succeeded and None in last
        return TrialJob(
            over=True,
            succeeded=succeeded,
            stopped=status.phase is Phase.STOPPED,
            message=status.message or status.reason,
            value=value,
            step=step,
            further=[None if one is None else one[0] for one in last[1:]],
            reported=self._objectives.reported(job) if missing else {},
            uid=job.key.uid,
            attempt=status.attempt,
        )

    def start(self, record: StudyRecord, trial: TrialStatus, capacity: Capacity) -> str:
        """Submit the job of a trial, once. Returns why it is refused; else nothing."""
        key = record.key
        try:
            self._jobs.submit(
                self._owner(record),
                trial_job(key.name, record.spec, trial),
                capacity,
                add_arguments=not record.spec.original,
                refuse_uris=False,
                # With this key, the next pass finds the same job after a crash.
                idempotency_key=f"study-{key.uid}-{trial.number}",
                parent=_reference(record),
                parameters=_parameter_variables(record.spec, trial),
            )
        except RequestError as error:
            return error.user_message
        return ""

    def stop(self, record: StudyRecord, number: int) -> None:
        """Stop the job of a trial, unless it has ended."""
        name = trial_name(record.key.name, number)
        with contextlib.suppress(Conflict, NotFound):
            why = record.status.trials[number].stopping
            self._jobs.cancel(record.key.org, name, self._owner(record), why=why)

    def _owner(self, record: StudyRecord) -> Identity:
        """Who asked for the study: what they were allowed then, its trials are allowed."""
        organisation = self._identities.organisation(record.key.org)
        return Identity("", "", organisation, record.owner, Role.MEMBER)


def _parameter_variables(spec: StudySpec, trial: TrialStatus) -> Collection[str]:
    """The names of variables of a trial's job that are its parameters."""
    return trial.parameters if spec.parameters_as is ParametersAs.ENVIRONMENT else ()


def _reference(record: StudyRecord) -> ParentRef:
    return ParentRef(STUDY.name, record.key.uid)
