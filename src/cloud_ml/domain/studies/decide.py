"""What follows for a study from its record, and from the jobs of its trials. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from difflib import get_close_matches

from cloud_ml.domain.metrics.series import EVENT_FILES, LOG, REPORTS
from cloud_ml.domain.records import Decision, Event, EventType
from cloud_ml.domain.studies import ends
from cloud_ml.domain.studies.kept_checkpoints import find_superfluous
from cloud_ml.domain.studies.ranking import sign_of, values_text
from cloud_ml.domain.studies.repeats import count_searched, next_repeat
from cloud_ml.domain.studies.spec import (
    StudyPhase,
    StudyRecord,
    StudySpec,
    StudyStatus,
    TrialCheckpoints,
    TrialState,
    TrialStatus,
    seeded,
    trial_name,
)
from cloud_ml.domain.studies.stopping import Curve, Curves, bracket_of, turned, why_stop
from cloud_ml.domain.studies.values import Suggestion

_LOOK_EVERY = timedelta(seconds=1)
_TRY_AGAIN = timedelta(seconds=30)
"""When checkpoints that could not be removed are tried again."""
_SHOWN = 5
_PLACES = {REPORTS: "job.report", EVENT_FILES: "event files", LOG: "log"}


@dataclass(frozen=True, kw_only=True)
class TrialJob:
    """What a trial's job says.

    Attributes:
        waits: Whether it is in the queue.
        over: Whether it has ended.
        succeeded: Whether it has ended well.
        stopped: Whether somebody stopped it.
        message: Why it ended.
        value: The last value of the objective, if it reported any; of several, of the first.
        step: The step of that value.
        further: The last values of the other objectives.
        reported: Metrics that it reported instead, of a job without a value, and where each was
            found.
        last_line: The last line that it printed, if it reported no metric at all.
        uid: Of the job.
        attempt: Its last one.
    """

    waits: bool = False
    over: bool = False
    succeeded: bool = False
    stopped: bool = False
    message: str = ""
    value: float | None = None
    step: int | None = None
    further: Sequence[float | None] = ()
    reported: Mapping[str, str] = field(default_factory=dict)
    last_line: str = ""
    uid: str = ""
    attempt: int = 0


@dataclass(frozen=True)
class StartTrial:
    """Submit the job of a trial. The same trial is one job, however often this is done."""

    trial: TrialStatus


@dataclass(frozen=True)
class StopTrial:
    """Stop the job of a trial."""

    number: int


@dataclass(frozen=True)
class AskTuner:
    """Ask the tuner for the parameters of the trial of that number; ``ahead``, while no place is
    free for it.
    """

    number: int
    ahead: bool = False


@dataclass(frozen=True)
class RemoveCheckpoints:
    """Remove the checkpoints of trials, unless somebody refers to them."""

    numbers: Sequence[int]


@dataclass(frozen=True)
class ObservedTrials:
    """What there is of trials, by their numbers: their jobs, why a job was refused, and what the
    tuner suggested, what they have reported so far, of a study that stops trials early, and what
    became of checkpoints that were to be removed.
    """

    jobs: Mapping[int, TrialJob] = field(default_factory=dict)
    refused: Mapping[int, str] = field(default_factory=dict)
    suggested: Mapping[int, Suggestion] = field(default_factory=dict)
    curves: Mapping[int, Curve] = field(default_factory=dict)
    checkpoints: Mapping[int, TrialCheckpoints] = field(default_factory=dict)


Suggest = Callable[[StudySpec, Sequence[TrialStatus], int], Suggestion | None]
"""The parameters of the trial of that number, after these trials. The same arguments give the
same parameters. ``None`` if they take more than a function: then the tuner is asked.
"""
StudyAction = StartTrial | StopTrial | AskTuner | RemoveCheckpoints
StudyDecision = Decision[StudyStatus, StudyAction]


def decide(
    record: StudyRecord, observed: ObservedTrials, now: datetime, suggest: Suggest
) -> StudyDecision:
    """Note what ended, then end the study or begin the next trial, then act.

    A trial gets its number and parameters by a commit, and its job only then. So a server may be
    killed anywhere: no trial is lost, and none is run twice.
    """
    spec, status = seeded(record), record.status
    if spec.extended > status.extended:
        return Decision(_extended(spec, status))
    if observed.checkpoints:
        return Decision(_with_checkpoints(status, observed.checkpoints))
    if status.phase.over:
        return _remove_checkpoints(spec, status, now)
    stops = status.phase is StudyPhase.STOPPING
    trials = tuple(
        trial if trial.over else _looked_at(trial, observed, spec, stops=stops)
        for trial in status.trials
    )
    if trials != status.trials:
        events = list(_news(record, trials, now))
        return Decision(replace(status, trials=trials), events=events)
    if (end := ends.end_of(record, spec, now)) is not None:
        reason = end.phase if status.phase is StudyPhase.STOPPING else end.reason
        event = Event(now, reason, end.message, _type_of(end.phase))
        return Decision(end, events=[event])
    if (turned := _paused(spec, status)) is not None:
        return Decision(turned)
    if status.phase is StudyPhase.STOPPING:
        return Decision(
            actions=[StopTrial(t.number) for t in status.running if _lives(t, observed)]
        )
    if (stopping := _stopped_early(spec, status, observed)) != status:
        return Decision(stopping)
    return _go_on(record, spec, observed, now, suggest)


def _go_on(
    record: StudyRecord, spec: StudySpec, observed: ObservedTrials, now: datetime, suggest: Suggest
) -> StudyDecision:
    """The next trial begins, or what is committed is carried out."""
    status = record.status
    if spec.local:  # its users ask for trials, and tell how they ended
        return Decision(requeue_at=ends.deadline(record))
    actions: list[StudyAction] = [
        StartTrial(trial) for trial in status.running if trial.number not in observed.jobs
    ]
    actions += [StopTrial(t.number) for t in status.running if t.stopping and _lives(t, observed)]
    if superfluous := find_superfluous(spec, status):
        actions.append(RemoveCheckpoints(superfluous))
    full = not _has_room(spec, status, observed)
    if status.phase is not StudyPhase.RUNNING:
        return Decision(actions=actions, requeue_at=_next_look(record, spec, now))
    if not full and (again := next_repeat(spec, status.trials)) is not None:
        return Decision(_with_repeat(status, again))
    if count_searched(status.trials) < spec.max_trials:
        begun = _next_trial(spec, status, observed, now, suggest)
        if begun is not None and not full:
            return begun
        if begun is None:
            actions.append(AskTuner(len(status.trials), ahead=full))
    return Decision(actions=actions, requeue_at=_next_look(record, spec, now))


def _has_room(spec: StudySpec, status: StudyStatus, observed: ObservedTrials) -> bool:
    """Whether another trial may begin.

    Only one at a time waits in the queue. So a study has as many trials as there is room for; what
    they teach is known when the next one is chosen; and a job that comes later waits for one
    trial, not for all. An original tuning names its trials, and has the jobs of all at once.
    """
    if len(status.running) >= spec.parallel:
        return False
    if spec.original:
        return True
    jobs = (observed.jobs.get(trial.number) for trial in status.running)
    return not any(job is None or job.waits for job in jobs)


def _with_checkpoints(status: StudyStatus, found: Mapping[int, TrialCheckpoints]) -> StudyStatus:
    """The status with what became of checkpoints."""
    trials = tuple(
        replace(trial, checkpoints=found[trial.number]) if trial.number in found else trial
        for trial in status.trials
    )
    return replace(status, trials=trials)


def _remove_checkpoints(spec: StudySpec, status: StudyStatus, now: datetime) -> StudyDecision:
    """What is left to do when a study has ended."""
    superfluous = find_superfluous(spec, status)
    if not superfluous:
        return Decision()
    return Decision(actions=[RemoveCheckpoints(superfluous)], requeue_at=now + _TRY_AGAIN)


def _with_repeat(status: StudyStatus, trial: TrialStatus) -> StudyStatus:
    """The status with a repeat of a trial, which runs."""
    number = len(status.trials)
    again = TrialStatus(number=number, parameters=dict(trial.parameters), repeat_of=trial.number)
    return replace(status, trials=(*status.trials, again))


def _next_look(record: StudyRecord, spec: StudySpec, now: datetime) -> datetime | None:
    """When to look again though nothing happens: curves grow, and time runs out."""
    times = [end] if (end := ends.deadline(record)) is not None else []
    if spec.stopper is not None and record.status.running:
        times.append(now + _LOOK_EVERY)
    return min(times, default=None)


def _stopped_early(spec: StudySpec, status: StudyStatus, observed: ObservedTrials) -> StudyStatus:
    """The status in which trials that do badly are to end."""
    if spec.stopper is None:
        return status
    stopper = turned(spec.stopper) if sign_of(spec.goal) < 0 else spec.stopper
    done = {t.number for t in status.trials if t.state is TrialState.COMPLETED}
    completed = [curve for number, curve in observed.curves.items() if number in done]
    brackets = {number: bracket_of(stopper, number) for number in observed.curves}

    def judged(trial: TrialStatus) -> TrialStatus:
        own = observed.curves.get(trial.number)
        is_repeat = trial.repeat_of is not None  # means of curves that were cut would be wrong
        if trial.state is not TrialState.RUNNING or trial.stopping or not own or is_repeat:
            return trial
        bracket = brackets[trial.number]
        others = [
            curve
            for number, curve in observed.curves.items()
            if number != trial.number and brackets[number] == bracket
        ]
        why = why_stop(stopper, Curves(own, completed, others, bracket))
        return replace(trial, stopping=why) if why else trial

    return replace(status, trials=tuple(map(judged, status.trials)))


def _next_trial(
    spec: StudySpec, status: StudyStatus, observed: ObservedTrials, now: datetime, suggest: Suggest
) -> StudyDecision | None:
    """The next trial begins; ``None`` if its parameters are not known yet."""
    number, events = len(status.trials), list[Event]()
    taken = sum(trial.queued for trial in status.trials)
    queued = number >= len(spec.trials) and taken < len(spec.queued)
    if queued:
        suggestion: Suggestion | None = Suggestion(spec.queued[taken])
    else:
        suggestion = observed.suggested.get(number) or suggest(spec, status.trials, number)
    if suggestion is None:
        return None
    if suggestion.problem:
        events.append(Event(now, "TunerFailed", suggestion.problem, EventType.WARNING))
    trial = TrialStatus(
        number=number,
        parameters=dict(suggestion.parameters),
        queued=queued,
        parent=suggestion.parent,
        member=suggestion.member,
    )
    if (
        suggestion.parent is not None
        and status.trials[suggestion.parent].member != suggestion.member
    ):
        why = f"trial {number} of member {suggestion.member} goes on from trial {suggestion.parent}"
        events.append(Event(now, "TrialExploits", why))
    return Decision(replace(status, trials=(*status.trials, trial)), events=events)


def _looked_at(
    trial: TrialStatus, observed: ObservedTrials, spec: StudySpec, *, stops: bool
) -> TrialStatus:
    """A trial that runs, as its job shows it. While the study ``stops``, none begins any more."""
    if trial.number in observed.refused:
        return _ended(trial, TrialState.FAILED, observed.refused[trial.number])
    job = observed.jobs.get(trial.number)
    if job is None and trial.started:
        return _ended(trial, TrialState.DELETED, "its job was deleted")
    if job is None:
        return _ended(trial, TrialState.STOPPED, "the study ended before") if stops else trial
    trial = replace(trial, started=True)
    if not job.over:
        return trial
    trial = replace(trial, value=_number(job.value), step=job.step, values=_values(spec, job))
    if trial.stopping and job.stopped and not stops:
        return _ended(trial, TrialState.EARLY_STOPPED, trial.stopping)
    if job.stopped:
        return _ended(trial, TrialState.STOPPED, job.message)
    if not job.succeeded:
        return _ended(trial, TrialState.FAILED, job.message)
    return _with_values(trial, spec, job)


def _with_values(trial: TrialStatus, spec: StudySpec, job: TrialJob) -> TrialStatus:
    """A trial whose job has succeeded, by what that has reported."""
    last = (job.value, *job.further)
    for objective, value in zip(spec.objectives, last, strict=False):
        if value is None:
            why = _missing(objective.metric, job, spec.job.metric_patterns)
            return _ended(trial, TrialState.METRIC_MISSING, why)
    for objective, value in zip(spec.objectives, last, strict=False):
        if _number(value) is None:
            of = f" of {objective.metric}" if spec.further else ""
            return _ended(trial, TrialState.INFEASIBLE, f"its last value{of} is {value}")
    return replace(trial, state=TrialState.COMPLETED)


def _values(spec: StudySpec, job: TrialJob) -> tuple[float, ...]:
    """The values of several objectives, if there is each of them."""
    last = [_number(value) for value in (job.value, *job.further)]
    known = tuple(value for value in last if value is not None)
    return known if spec.further and len(known) == len(spec.objectives) else ()


def _missing(metric: str, job: TrialJob, patterns: Sequence[str] | None) -> str:
    """Why there is no value: what a job reported instead, the most similar name first, or where it
    was looked for, and what it printed last.
    """
    reported = job.reported
    printed = f" (its log ends with {job.last_line!r})" if job.last_line else ""
    if not reported and patterns is None:
        return (
            f"its job reported no {metric}, nor any other metric{printed}: name as the objective what "
            f"it prints, find it by --metric-pattern (job.metric_patterns), print {metric}=0.25, call "
            "cloud_ml.job.report, or write TensorBoard event files"
        )
    if not reported:
        return (
            f"its job reported no {metric}, nor any other metric{printed}: no line of the log matches "
            "metric_patterns, there was no call of job.report, and no scalar in event files of the "
            "working folder and output_path"
        )
    near = get_close_matches(metric, reported, n=_SHOWN, cutoff=0)
    named = ", ".join(f"{name} ({_PLACES.get(reported[name], reported[name])})" for name in near)
    others = "" if len(reported) <= len(near) else f" and {len(reported) - len(near)} more"
    hint = "name one of them as the objective"
    if patterns is None:
        hint += f", find it by --metric-pattern, or print lines such as {metric}=0.25"
    return f"its job reported no {metric}, but {named}{others}; {hint}"


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _ended(trial: TrialStatus, state: TrialState, why: str) -> TrialStatus:
    return replace(trial, state=state, message=ends.shortened(why))


def _news(record: StudyRecord, trials: Sequence[TrialStatus], now: datetime) -> Iterator[Event]:
    """What is said about trials that ended."""
    for before, trial in zip(record.status.trials, trials, strict=True):
        if trial.state is before.state:
            continue
        name = trial_name(record.key.name, trial.number)
        if trial.state is TrialState.COMPLETED:
            message = f"{name} completed with {values_text(record.spec, trial)}"
            yield Event(now, "TrialCompleted", message)
        elif trial.state is TrialState.EARLY_STOPPED:
            yield Event(now, "TrialEarlyStopped", f"{name} ended early: {trial.message}")
        else:
            message = f"{name} is {trial.state}: {trial.message}"
            yield Event(now, f"Trial{trial.state}", message, EventType.WARNING)


def _extended(spec: StudySpec, status: StudyStatus) -> StudyStatus:
    """The status in which a study goes on: one that has ended begins again."""
    if status.phase.over:
        status = replace(status, phase=StudyPhase.RUNNING, reason="Extended", message="")
    return replace(status, extended=spec.extended)


def _paused(spec: StudySpec, status: StudyStatus) -> StudyStatus | None:
    """The status with which a pause begins or ends; ``None`` if neither does."""
    if spec.paused and status.phase is StudyPhase.RUNNING:
        message = "trials that run go on; no other begins"
        return replace(status, phase=StudyPhase.PAUSED, reason="PauseRequested", message=message)
    if not spec.paused and status.phase is StudyPhase.PAUSED:
        return replace(status, phase=StudyPhase.RUNNING, reason="ResumeRequested", message="")
    return None


def _lives(trial: TrialStatus, observed: ObservedTrials) -> bool:
    job = observed.jobs.get(trial.number)
    return job is not None and not job.over


def _type_of(phase: StudyPhase) -> EventType:
    return EventType.NORMAL if phase is StudyPhase.COMPLETED else EventType.WARNING
