"""What follows for a trial that Optuna's client changes. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from cloud_ml.domain.metrics.points import LARGEST_STEP
from cloud_ml.domain.studies.ends import why_closed
from cloud_ml.domain.studies.optuna_distributions import (
    check_compatible,
    parse_distribution,
)
from cloud_ml.domain.studies.optuna_records import OptunaTrial
from cloud_ml.domain.studies.optuna_views import (
    COMPLETE,
    RUNNING,
    STATES,
    WAITING,
    OptunaTrialView,
)
from cloud_ml.domain.studies.spec import (
    ReportedValue,
    StudyRecord,
    StudyStatus,
    TrialState,
    TrialStatus,
)
from cloud_ml.errors import Conflict, InvalidRequest, NotFound
from cloud_ml.models.common import refuse
from cloud_ml.settings.sizes import MIB

MOST_TRIAL, MOST_STUDY_ATTRIBUTES, MOST_STUDY = MIB // 4, MIB, 8 * MIB
"""Characters of a trial, of the attributes of a study, and of all of its trials."""
_SMALL = MIB // 64
"""A trial may have so many characters also where all trials of its study have more than they may."""
_FIELDS, _POINT = 1_000, 50
"""About the characters of a trial without parameters, and of a report, as they are stored."""
_TIME = "%Y-%m-%d %H:%M:%S.%f"
_LONGEST_KEY, _LONGEST_TIME, _LONGEST_STEP = 1_000, 50, 2**63


@dataclass(frozen=True)
class NewParameter:
    """A parameter of a trial: its value as samplers count it, and its distribution as JSON."""

    name: str
    internal: float
    distribution: str


@dataclass(frozen=True)
class NewState:
    """A state of a trial, the values of its objectives, and what the change is known by."""

    state: int
    values: tuple[float, ...] = ()
    key: str = ""


def check_made_by_optuna(record: StudyRecord) -> None:
    """Refuse to change a study that Optuna's client did not make.

    Raises:
        Conflict: It did not.
    """
    if record.spec.optuna is None:
        raise Conflict(f"{record.key.name} was not made by Optuna: here it can only be read")


def with_new_trial(
    record: StudyRecord, template: OptunaTrialView | None, key: str, now: datetime
) -> StudyStatus:
    """The status with one more trial, which runs, or is as its template.

    Raises:
        Conflict: The study takes no more.
        InvalidRequest: The template is wrong.
    """
    check_made_by_optuna(record)
    status = record.status
    if why := why_closed(record):
        raise Conflict(why)
    if len(status.trials) >= record.spec.max_trials:
        raise Conflict(f"{record.key.name} has {record.spec.max_trials} trials, the most allowed")
    _check_room(status)
    if template is None:
        kept = OptunaTrial(started=format_time(now))
        trial = TrialStatus(number=len(status.trials), parameters={}, key=key, optuna=kept)
    else:
        trial = _from_template(record, template, key, to_milliseconds(now))
    return replace(status, trials=(*status.trials, trial))


def _from_template(
    record: StudyRecord, template: OptunaTrialView, key: str, at: int
) -> TrialStatus:
    """The trial of a template. All of it is put together at once: a template has many thousand
    entries, and each would be a new trial.
    """
    if template.state not in STATES:
        raise refuse("template_trial.state", template.state, "0 to 4")
    for text in (template.started, template.completed):
        if len(text) > _LONGEST_TIME:
            raise refuse("template_trial.datetime", text[:100], f"at most {_LONGEST_TIME} letters")
    parameters, distributions = dict[str, Any](), dict[str, str]()
    if lacking := sorted(template.distributions.keys() - template.params.keys()):
        raise refuse("template_trial.params", lacking[0][:100], "a value of each distribution")
    for name, value in template.params.items():
        text = template.distributions.get(name, "")
        if not text:
            raise refuse("template_trial.distributions", name, "a distribution of each parameter")
        parameters[name] = _external(record, NewParameter(name, value, text))
        distributions[name] = text
    for name, text in (*template.user.items(), *template.system.items()):
        _check_attribute(name, text)
    kept = OptunaTrial(
        started=template.started,
        completed=template.completed,
        distributions=distributions,
        internal={name: repr(value) for name, value in template.params.items()},
        user=dict(template.user),
        system=dict(template.system),
    )
    number = len(record.status.trials)
    trial = TrialStatus(number=number, parameters=parameters, key=key, optuna=kept)
    trial = _check_size(_with_reports(trial, template.intermediate, at))
    _check_values(record, template.state, template.values)
    if template.values:
        trial = _with_values(trial, template.values)
    return replace(trial, state=STATES[template.state])


def with_parameter(record: StudyRecord, trial: TrialStatus, request: NewParameter) -> TrialStatus:
    """The trial with a parameter.

    Raises:
        InvalidRequest: Earlier trials have it of another kind, or it has no such value.
    """
    name, text = request.name, request.distribution
    value = _external(record, request)
    kept = _require_optuna(trial)
    kept = replace(
        kept,
        distributions={**kept.distributions, name: text},
        # Store as text, which keeps every digit and also infinity.
        internal={**kept.internal, name: repr(request.internal)},
    )
    return _check_size(replace(trial, parameters={**trial.parameters, name: value}, optuna=kept))


def _external(record: StudyRecord, request: NewParameter) -> Any:
    """The value of a parameter as users see it."""
    name, text = request.name, request.distribution
    _check_key("param_name", name)
    distribution = parse_distribution(text)
    # Comparing with the newest trial that has the parameter is enough: each one was compared with
    # its predecessor.
    for other in reversed(record.status.trials):
        before = other.optuna.distributions.get(name) if other.optuna else None
        if before == text:
            break
        if before is not None:
            check_compatible(parse_distribution(before), distribution)
            break
    return distribution.external(request.internal)


def with_state(
    record: StudyRecord, trial: TrialStatus, request: NewState, now: datetime
) -> TrialStatus | None:
    """The trial in a state; ``None`` if another process has begun it.

    Raises:
        InvalidRequest: There is no such state, or it has other numbers of values.
    """
    kept, state, values = _require_optuna(trial), request.state, request.values
    if state not in STATES:
        raise refuse("state", state, "0 to 4")
    if state == RUNNING and trial.state is not TrialState.WAITING:
        return None
    _check_values(record, state, values)
    if values:
        trial = _with_values(trial, values)
        kept = _require_optuna(trial)
    kept = replace(kept, key=request.key)
    if state == RUNNING:
        kept = replace(kept, started=format_time(now))
    elif state != WAITING:
        kept = replace(kept, completed=format_time(now))
    return replace(trial, state=STATES[state], optuna=kept)


def with_intermediate(trial: TrialStatus, step: int, value: float, at: int) -> TrialStatus:
    """The trial with what it reported at a step. The last one is its value while it runs.

    Those that come in order are points, of which each is stored alone; ``at`` is in milliseconds
    since 1970.
    """
    return _check_size(_with_reports(trial, {step: value}, at))


def _with_reports(trial: TrialStatus, reports: Mapping[int, float], at: int) -> TrialStatus:
    kept = _require_optuna(trial)
    late, points, last_value, last_step = (
        dict(kept.intermediate), list(trial.points), trial.value, trial.step
    )  # fmt: skip
    for step, value in reports.items():
        if abs(step) >= _LONGEST_STEP:
            raise refuse("step", step, "a whole number of 64 bits")
        last, finite = points[-1].step if points else None, math.isfinite(value)
        in_order = (last is None or step > last) and str(step) not in late
        if in_order and finite and abs(step) <= LARGEST_STEP:
            points.append(ReportedValue(step, value, at))
            last_value, last_step = value, step
            continue
        late[str(step)] = repr(value)
        if finite and step == last:
            last_value = value
    return replace(
        trial, value=last_value, step=last_step,
        points=trial.points if len(points) == len(trial.points) else tuple(points),
        optuna=replace(kept, intermediate=late),
    )  # fmt: skip


def with_attribute(trial: TrialStatus, name: str, text: str, *, of_user: bool) -> TrialStatus:
    """The trial with an attribute.

    Raises:
        InvalidRequest: It is no JSON, or the trial becomes too large.
    """
    kept = _require_optuna(trial)
    table = attributes_with(kept.user if of_user else kept.system, name, text)
    kept = replace(kept, user=table) if of_user else replace(kept, system=table)
    return _check_size(replace(trial, optuna=kept))


def attributes_with(table: Mapping[str, str], name: str, text: str) -> dict[str, str]:
    """The attributes with one more, or another value of one.

    Raises:
        InvalidRequest: It is no JSON.
    """
    _check_attribute(name, text)
    return {**table, name: text}


def _check_attribute(name: str, text: str) -> None:
    _check_key("key", name)
    if len(text) > MOST_STUDY_ATTRIBUTES:
        raise refuse("value", f"of {len(text)} characters", f"at most {MOST_STUDY_ATTRIBUTES}")
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        raise refuse("value", text[:100], "a JSON document") from None


def format_time(time: datetime) -> str:
    """A time as Optuna writes it, in UTC."""
    return time.astimezone(UTC).strftime(_TIME)


def to_milliseconds(time: datetime) -> int:
    """A time as points have it."""
    return int(time.timestamp() * 1000)


def check_updatable(trial: TrialStatus) -> TrialStatus:
    """The trial, which may still change.

    Raises:
        Conflict: It has ended.
    """
    if trial.over:
        raise Conflict(f"trial {trial.number} has ended and cannot be changed: {trial.state}")
    return trial


def trial_at(record: StudyRecord, number: int) -> TrialStatus:
    """The trial of that number.

    Raises:
        NotFound: There is none.
    """
    if not 0 <= number < len(record.status.trials):
        raise NotFound(f"{record.key.name} has no trial {number}")
    return record.status.trials[number]


def replace_trial(status: StudyStatus, trial: TrialStatus) -> StudyStatus:
    """The status with this trial in the place of the one of its number.

    Raises:
        Conflict: All trials together have become too large.
    """
    if _size(trial) > _SMALL:
        _check_room(status)
    trials = list(status.trials)
    trials[trial.number] = trial
    return replace(status, trials=tuple(trials))


def _with_values(trial: TrialStatus, values: tuple[float, ...]) -> TrialStatus:
    kept = replace(_require_optuna(trial), values=tuple(map(repr, values)))
    known = all(map(math.isfinite, values))
    several = values if known and len(values) > 1 else ()
    value = values[0] if known else None
    odd = [one for one in values if not math.isfinite(one)]
    message = f"its value is {odd[0]}, so it is never the best here" if odd else trial.message
    return replace(trial, value=value, values=several, message=message, optuna=kept)


def _check_values(record: StudyRecord, state: int, values: tuple[float, ...]) -> None:
    count = len(record.spec.objectives)
    if (values or state == COMPLETE) and len(values) != count:
        raise refuse("values", list(values), f"{count}, one for each direction")


def _require_optuna(trial: TrialStatus) -> OptunaTrial:
    if trial.optuna is None:
        raise Conflict(f"trial {trial.number} was not made by Optuna: here it can only be read")
    return trial.optuna


def _check_size(trial: TrialStatus) -> TrialStatus:
    size = _size(trial)
    if size > MOST_TRIAL:
        size_text = f"a trial of {size} characters"
        raise InvalidRequest(
            f"parameters, attributes and reports make {size_text}; allowed: at most {MOST_TRIAL}",
            field="value", value=size_text, allowed=f"at most {MOST_TRIAL}",
        )  # fmt: skip
    return trial


def _size(trial: TrialStatus) -> int:
    """Characters of a trial, about as it is stored."""
    return len(trial.points) * _POINT + (trial.optuna.size if trial.optuna else 0)


def _check_room(status: StudyStatus) -> None:
    """Refuse one more trial of a study whose trials are large: all of them are in memory at once."""
    size = sum(_FIELDS + _size(trial) for trial in status.trials)
    if size > MOST_STUDY:
        raise Conflict(f"the trials of this study have {size} characters, at most {MOST_STUDY}")


def _check_key(field_name: str, name: str) -> None:
    if not 0 < len(name) <= _LONGEST_KEY or "\0" in name:
        raise refuse(field_name, name[:100], f"a text of 1 to {_LONGEST_KEY} characters")
