"""What follows for a study whose trials are run by loops of its users. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, overload

from cloud_ml.domain.metrics.points import LARGEST_STEP, Point
from cloud_ml.domain.studies import ends
from cloud_ml.domain.studies.ranking import sign_of
from cloud_ml.domain.studies.spec import (
    ReportedValue,
    StudyRecord,
    StudyStatus,
    TrialState,
    TrialStatus,
)
from cloud_ml.domain.studies.stopping import Curves, bracket_of, says_more, turned, why_stop
from cloud_ml.errors import Conflict, InvalidRequest, NotFound
from cloud_ml.models.common import refuse

_STATES = {
    "completed": TrialState.COMPLETED,
    "failed": TrialState.FAILED,
    "infeasible": TrialState.INFEASIBLE,
    "metric_missing": TrialState.METRIC_MISSING,
    "stopped": TrialState.STOPPED,
}


def check_local(record: StudyRecord) -> None:
    """Refuse a study that runs its trials as jobs, or whose trials Optuna chooses.

    Raises:
        Conflict: It does, or they are.
    """
    if record.spec.optuna is not None:
        raise Conflict(
            f"Optuna's client made {record.key.name}; it chooses its trials", field="local"
        )
    if not record.spec.local:
        raise Conflict(
            f"the trials of {record.key.name} are jobs, which the platform runs", field="local"
        )


def trial_with(status: StudyStatus, key: str) -> TrialStatus | None:
    """The trial that was asked for with this key."""
    keys = [trial.key for trial in status.trials]
    return status.trials[keys.index(key)] if key in keys else None


def why_none(record: StudyRecord) -> str:
    """Why there is no trial to run; empty if there is one."""
    if why := ends.why_closed(record):
        return why
    if len(record.status.trials) >= record.spec.max_trials:
        return f"all {record.spec.max_trials} trials have begun"
    return ""


def named_next(record: StudyRecord) -> Mapping[str, Any] | None:
    """The parameters of the next trial, if a user has named them."""
    spec, status = record.spec, record.status
    number = len(status.trials)
    if number < len(spec.trials):
        return spec.trials[number]
    if not spec.queued:
        return None
    taken = sum(trial.queued for trial in status.trials)
    return spec.queued[taken] if taken < len(spec.queued) else None


def add_trial(record: StudyRecord, key: str, parameters: Mapping[str, Any]) -> StudyStatus:
    """The status with one more trial, which runs."""
    status = record.status
    number = len(status.trials)
    queued = number >= len(record.spec.trials) and named_next(record) is not None
    trial = TrialStatus(number=number, parameters=dict(parameters), queued=queued, key=key)
    return replace(status, trials=(*status.trials, trial))


def end_trial(
    record: StudyRecord, number: int, state: str, values: Sequence[float], message: str
) -> StudyStatus:
    """The status with the end of a trial; the very status of ``record`` if it was told already.
    ``values`` has one for each objective, or none.

    Raises:
        InvalidRequest: The state or the value is wrong.
        NotFound: There is no such trial.
        Conflict: It has ended otherwise.
    """
    trial = _found(record, number)
    if state not in _STATES:
        raise refuse("state", state, ", ".join(_STATES))
    ended = _STATES[state]
    if ended is TrialState.COMPLETED:
        values = _checked_values(record, trial, values)
        ended = TrialState.EARLY_STOPPED if trial.stopping else ended
    value = values[0] if values else None
    several = tuple(values) if record.spec.further else ()
    if trial.state is not TrialState.RUNNING:
        if (trial.state, trial.value, trial.values) == (ended, value, several):
            return record.status
        raise Conflict(f"trial {number} is {trial.state} already", field="number", value=number)
    step = trial.points[-1].step if trial.points else None
    why = ends.shortened(message or trial.stopping)
    trial = replace(trial, state=ended, value=value, values=several, step=step, message=why)
    return _with(record.status, trial)


def _checked_values(
    record: StudyRecord, trial: TrialStatus, values: Sequence[float]
) -> Sequence[float]:
    """The values of a completed trial: those that were told, else the last that it reported."""
    metrics = [one.metric for one in record.spec.objectives]
    if not values and trial.points:
        values = [trial.points[-1].value]
    if not values and not record.spec.further:
        raise InvalidRequest("value is missing, and the trial reported none", field="value")
    field = "values" if record.spec.further else "value"
    if len(values) != len(metrics):
        allowed = (
            f"one number for each objective, in this order: {', '.join(metrics)}"
            if record.spec.further
            else f"one number, the {metrics[0]}"
        )
        raise refuse(field, list(values), allowed)
    for value in values:
        if not math.isfinite(value):
            raise refuse(field, value, "a number; tell state infeasible instead")
    return values


def report_value(
    record: StudyRecord, number: int, step: int, value: float, at: int, *, most: int
) -> StudyStatus:
    """The status with a value that a trial reported, and with the request that it ends if it does
    badly; the very status of ``record`` if nothing changes. A study keeps ``most`` values.

    Raises:
        InvalidRequest: The step is beyond what a step can be.
        NotFound: There is no such trial.
        Conflict: It has ended, the study has several objectives, or as many values as are kept.
    """
    if record.spec.further:
        count = len(record.spec.objectives)
        message = f"{record.key.name} has {count} objectives; a value is reported of one"
        raise Conflict(f"{message}. Tell all values when the trial has ended.", field="objective")
    if abs(step) > LARGEST_STEP:
        raise refuse("step", step, f"{-LARGEST_STEP} to {LARGEST_STEP}")
    trial = _found(record, number)
    if trial.state is not TrialState.RUNNING:
        raise Conflict(f"trial {number} is {trial.state} already", field="number", value=number)
    # A repeated or late report changes nothing.
    if (trial.points and step <= trial.points[-1].step) or trial.stopping:
        return record.status
    if sum(len(one.points) for one in record.status.trials) >= most:
        raise Conflict(f"{record.key.name} has {most} reports already", field="step")
    trial = replace(trial, points=(*trial.points, ReportedValue(step, value, at)))
    status = _with(record.status, trial)
    return _with(status, replace(trial, stopping=_why_stop(record, status, trial)))


def _why_stop(record: StudyRecord, status: StudyStatus, trial: TrialStatus) -> str:
    stopper, points = record.spec.stopper, trial.points
    before = points[-2].step if len(points) > 1 else None
    if stopper is None or not says_more(stopper, before, points[-1].step):
        return ""
    sign = sign_of(record.spec.goal)
    stopper = turned(stopper) if sign < 0 else stopper

    others = [one for one in status.trials if one.number != trial.number and one.points]
    done = [_Curve(one, sign) for one in others if one.state is TrialState.COMPLETED]
    bracket = bracket_of(stopper, trial.number)
    peers = [_Curve(one, sign) for one in others if bracket_of(stopper, one.number) == bracket]
    return why_stop(stopper, Curves(_Curve(trial, sign), done, peers, bracket))


class _Curve(Sequence[Point]):
    """The values of a trial as points, each made when a rule looks at it: rules look at few."""

    def __init__(self, trial: TrialStatus, sign: int) -> None:
        self._values = trial.points
        self._sign = sign

    def __len__(self) -> int:
        return len(self._values)

    @overload
    def __getitem__(self, at: int) -> Point: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Point]: ...

    def __getitem__(self, at: int | slice) -> Point | Sequence[Point]:
        if isinstance(at, slice):
            return [self._point(value) for value in self._values[at]]
        return self._point(self._values[at])

    def _point(self, value: ReportedValue) -> Point:
        return Point(value.step, value.at, self._sign * value.value)


def _found(record: StudyRecord, number: int) -> TrialStatus:
    if not 0 <= number < len(record.status.trials):
        raise NotFound(f"{record.key.name} has no trial {number}", field="number", value=number)
    return record.status.trials[number]


def _with(status: StudyStatus, trial: TrialStatus) -> StudyStatus:
    before, behind = status.trials[: trial.number], status.trials[trial.number + 1 :]
    return replace(status, trials=(*before, trial, *behind))
