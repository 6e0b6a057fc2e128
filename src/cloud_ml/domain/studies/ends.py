"""When a study ends, and with which reason. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from cloud_ml.domain.studies.ranking import best_of, front_trials, sign_of
from cloud_ml.domain.studies.repeats import Estimate, count_searched, find_estimates, next_repeat
from cloud_ml.domain.studies.spec import (
    StudyPhase,
    StudyRecord,
    StudySpec,
    StudyStatus,
    TrialState,
    TrialStatus,
)
from cloud_ml.models.common import duration_text

_LONGEST_MESSAGE = 300
_FAILURES = (TrialState.FAILED, TrialState.METRIC_MISSING)
_WITHOUT_VALUE = (*_FAILURES, TrialState.INFEASIBLE)
_LATE = "MaxTimeReached"
_FAILED_BY_TRIALS = ("TooManyFailures", "SameFailure")
_NUMBERS = re.compile(r"[0-9]+")


def deadline(record: StudyRecord) -> datetime | None:
    """When the time of a study is over; ``None`` if it has no limit."""
    most = record.spec.max_time_s
    return record.created_at + timedelta(seconds=most) if most else None


def why_closed(record: StudyRecord) -> str:
    """Why no trial begins, however many are left; empty if one may. A request to pause, to resume
    or to end counts from its answer on, and shows in the phase a moment later.
    """
    spec, status = record.spec, record.status
    if status.phase not in (StudyPhase.RUNNING, StudyPhase.PAUSED):
        return f"{record.key.name} is {status.phase}: {status.message or status.reason}"
    if spec.stopped or spec.paused:
        return f"{record.key.name} is {'stopped' if spec.stopped else 'paused'} by a user"
    return ""


def end_of(record: StudyRecord, spec: StudySpec, now: datetime) -> StudyStatus | None:
    """The status with which a study ends, or begins to; ``None`` while it goes on."""
    status = record.status
    if status.reason == "StopRequested" or (
        spec.stopped and status.phase is not StudyPhase.STOPPING
    ):
        return _ending(
            status, StudyPhase.STOPPED, "StopRequested", "stopped at the request of a user"
        )
    if status.phase is StudyPhase.STOPPING and status.reason in _FAILED_BY_TRIALS:
        # Trials that were stopped because of it must not hide why the study failed.
        return _ending(status, StudyPhase.FAILED, status.reason, status.message)
    if (failed := _failed(spec, status)) is not None:
        return failed
    if (enough := _enough(record, spec, now)) is not None:
        return enough
    if status.running or count_searched(status.trials) < spec.max_trials:
        return None
    if next_repeat(spec, status.trials) is not None:
        return None
    return _finished(spec, status, "Completed")


def _failed(spec: StudySpec, status: StudyStatus) -> StudyStatus | None:
    """The end of a study whose trials fail."""
    failures = [t for t in status.trials if t.state in _FAILURES]
    if len(failures) > spec.max_failed:
        several = f"{len(failures)} trials failed, the last"
        trials = "1 trial failed" if len(failures) == 1 else several
        why = f"{trials}: {failures[-1].message}"
        return _ending(status, StudyPhase.FAILED, "TooManyFailures", why)
    if spec.same_failures and _alike(status.trials) >= spec.same_failures:
        alike = _alike(status.trials)
        trials = "trial failed" if alike == 1 else f"{alike} trials failed alike"
        why = f"the last {trials}: {failures[-1].message}"
        return _ending(status, StudyPhase.FAILED, "SameFailure", why)
    return None


def _alike(trials: Sequence[TrialStatus]) -> int:
    """How many trials that ended last have failed with the same words; numbers may differ."""
    count, words = 0, ""
    for trial in reversed(trials):
        if not trial.over:
            continue
        message = _NUMBERS.sub("#", trial.message)
        if trial.state not in _FAILURES or message != (words or message):
            break
        count, words = count + 1, message
    return count


def _enough(record: StudyRecord, spec: StudySpec, now: datetime) -> StudyStatus | None:
    """The end of a study that has what it looked for, or no more time."""
    status = record.status
    if spec.target is not None:
        best = best_of(spec, status.trials)
        if best is not None and _reaches(spec, best):
            return _finished(spec, status, "TargetReached")
    late = deadline(record)
    if late is not None and now >= late:
        return _finished(spec, status, _LATE)
    return None


def _reaches(spec: StudySpec, trial: TrialStatus) -> bool:
    sign = sign_of(spec.goal)
    if spec.target is None or trial.value is None:
        return False
    return sign * trial.value <= sign * spec.target


def _finished(spec: StudySpec, status: StudyStatus, reason: str) -> StudyStatus | None:
    """The end with the best trial; without one it is a failure."""
    best, front = best_of(spec, status.trials), front_trials(spec, status.trials)
    if not front:
        without = [trial for trial in status.trials if trial.state in _WITHOUT_VALUE]
        last = f"; of the last one: {without[-1].message}" if without else ""
        what = "values of all objectives" if spec.further else "a value of the metric"
        late = f"max_time of {duration_text(spec.max_time_s)} is over, and "
        why = f"{late if reason == _LATE else ''}no trial completed with {what}{last}"
        reason = "NoTrialCompleted" if reason == "Completed" else reason
        return _ending(status, StudyPhase.FAILED, reason, why)
    if best is None:
        message = f"{len(front)} of {len(status.trials)} trials are on the Pareto front"
        return _ending(status, StudyPhase.COMPLETED, reason, message)
    estimate = find_estimates(status.trials).get(best.number)
    value = f"{best.value:g}" if estimate is None else estimate_text(estimate)
    message = f"the best {spec.metric} is {value}, of trial {best.number}"
    return _ending(status, StudyPhase.COMPLETED, reason, message)


def estimate_text(estimate: Estimate) -> str:
    """A mean in words: ``0.25 ± 0.01 (mean of 4 runs)``; of one run its value."""
    if estimate.runs == 1:
        return f"{estimate.mean:g}"
    error = "" if estimate.standard_error is None else f" ± {estimate.standard_error:.2g}"
    return f"{estimate.mean:g}{error} (mean of {estimate.runs} runs)"


def _ending(status: StudyStatus, end: StudyPhase, reason: str, why: str) -> StudyStatus | None:
    """The status on the way to an end: first what runs is stopped."""
    phase = StudyPhase.STOPPING if status.running else end
    if phase is status.phase:
        return None
    return replace(status, phase=phase, reason=reason, message=shortened(why))


def shortened(message: str) -> str:
    """A message of a study or a trial. What is cut is marked, so that nobody looks for its end."""
    if len(message) <= _LONGEST_MESSAGE:
        return message
    return message[: _LONGEST_MESSAGE - 1].rstrip() + "…"
