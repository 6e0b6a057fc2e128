"""What may change of a study that there is: it goes on, or trials of a user come next."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cloud_ml.domain.record_sizes import bytes_of
from cloud_ml.domain.studies.combinations import count_combinations, grid_size, is_finite
from cloud_ml.domain.studies.named_trials import check_trial
from cloud_ml.domain.studies.space import Parameter
from cloud_ml.domain.studies.spec import StudyRecord, StudySpec
from cloud_ml.errors import Conflict, InvalidRequest
from cloud_ml.models import common
from cloud_ml.models.studies.study import QueuedTrials, StudyExtension
from cloud_ml.settings.sizes import MIB
from cloud_ml.settings.studies import StudySettings
from cloud_ml.usecases.studies.dropped_trials import without_excluded_trials
from cloud_ml.usecases.studies.spaces import change_space, read_parameters_as

_MOST_BYTES, _NUMBER_BYTES = 8 * MIB, 24


def extended(
    study: StudyRecord, request: StudyExtension, settings: StudySettings
) -> tuple[StudySpec, Sequence[tuple[str, str]]]:
    """The study with more trials, and what is told of it: of trials of users that have not begun,
    those are dropped that the changed space excludes. An earlier target and time limit hold no more.

    Raises:
        InvalidRequest: There are not so many trials to run.
    """
    spec = study.spec
    _check_suggests(spec)
    if request.trials < 1:
        raise common.refuse("trials", request.trials, "1 or more")
    changed = _with_space(spec, request)
    in_space = spec if changed is spec else without_excluded_trials(changed, study.status)
    dropped = () if changed is spec else in_space.dropped
    spec = _with_more_trials(replace(in_space, dropped=dropped), request, settings)
    return spec, [("TrialDropped", f"the changed space excludes {one}") for one in dropped]


def _with_more_trials(
    spec: StudySpec, request: StudyExtension, settings: StudySettings
) -> StudySpec:
    most = spec.max_trials + request.trials
    if spec.space and is_finite(spec.space) and spec.population is None:
        named = len(spec.trials) + len(spec.queued)
        if spec.space_changed:  # trials of other spaces are no combinations of this one
            named = spec.max_trials
        combinations = count_combinations(spec.space, most, spec.constraints)
        most = most if combinations is None else min(most, named + combinations)
    goes_on = spec.stopped and most == spec.max_trials  # with trials that have not begun
    if (most <= spec.max_trials and not goes_on) or not spec.space:
        raise common.refuse("trials", request.trials, "none: all combinations are among its trials")
    _check_most("trials", request.trials, most, settings)
    if spec.repeats and request.target is not None:
        allowed = "no target, as repeats begin when all trials have ended"
        raise common.refuse("target", request.target, allowed)
    if spec.further and request.target is not None:
        raise common.refuse(
            "target", request.target, "no target, as the study has several objectives"
        )
    check_size(spec.space, (*spec.trials, *spec.queued), most)
    return replace(
        spec,
        max_trials=most,
        extended=spec.extended + 1,
        stopped=False,
        paused=False,
        target=target_of(request.target),
        max_time_s=max_time_of(request.max_time),
    )


def _with_space(spec: StudySpec, request: StudyExtension) -> StudySpec:
    """The study with the space that is wished for."""
    if not request.space and request.constraints is None:
        return spec
    if not spec.space:
        raise common.refuse("space", request.space, "nothing, as all trials were named")
    if spec.population is not None:
        allowed = "no change, as members of pbt go on with the parameters that they have"
        raise common.refuse("space", request.space, allowed)
    before = spec.space, spec.constraints
    space, constraints = change_space(spec.algorithm, before, request.space, request.constraints)
    if spec.algorithm == "grid":
        grid_size(space, 1, constraints)  # refuses a range of endlessly many values
    _check_folder(spec, space)
    read_parameters_as(spec.parameters_as, (one.name for one in space), spec.job.environment)
    return replace(spec, space=space, constraints=constraints, space_changed=True)


def _check_folder(spec: StudySpec, space: Sequence[Parameter]) -> None:
    if spec.job.output_path and any(parameter.name == "output_path" for parameter in space):
        allowed = "another name: each trial has a folder"
        raise common.refuse("space.output_path", "a parameter", allowed)


def enqueued(spec: StudySpec, request: QueuedTrials, settings: StudySettings) -> StudySpec:
    """The study with trials of a user, which come next and beside all others.

    Raises:
        InvalidRequest: A trial is wrong, or there would be too many.
    """
    _check_suggests(spec)
    if spec.population is not None:
        raise Conflict(
            "each trial of pbt belongs to a member of its population; name the first ones in trials",
            field="trials",
        )
    if not request.trials:
        raise common.refuse("trials", request.trials, "at least one trial")
    trials = [
        dict(check_trial(spec.space, trial, f"trials[{number}]", spec.constraints))
        for number, trial in enumerate(request.trials)
    ]
    names = (name for trial in trials for name in trial)
    read_parameters_as(spec.parameters_as, names, spec.job.environment)
    most = spec.max_trials + len(trials)
    _check_most("trials", len(trials), most, settings)
    queued = (*spec.queued, *trials)
    check_size(spec.space, (*spec.trials, *queued), most)
    return replace(spec, queued=queued, max_trials=most, extended=spec.extended + 1, stopped=False)


def _check_suggests(spec: StudySpec) -> None:
    """Refuse a study whose trials Optuna chooses.

    Raises:
        Conflict: It does.
    """
    if spec.optuna is not None:
        raise Conflict(
            "Optuna's client made this study: it chooses the trials and their number",
            field="trials",
            hint="Use study.optimize(…) or study.enqueue_trial(…) of Optuna.",
        )


def target_of(target: float | None) -> float | None:
    """A value that is good enough.

    Raises:
        InvalidRequest: It is no number.
    """
    if target is not None and not math.isfinite(target):
        raise common.refuse("target", target, "a number")
    return target


def max_time_of(max_time: str | int | None) -> float:
    """A limit of time in seconds; 0 for none.

    Raises:
        InvalidRequest: It is no duration.
    """
    if max_time is None:
        return 0.0
    return float(common.duration_seconds(common.check_duration("max_time", max_time)))


def check_size(space: Sequence[Parameter], trials: Sequence[Mapping[str, Any]], most: int) -> None:
    """Refuse trials that are too large together: all of them are written each time that one ends.

    Raises:
        InvalidRequest: They are.
    """
    largest = sum(bytes_of(each.name) + _longest(each.values) for each in space)
    whole = sum(map(bytes_of, trials)) + max(0, most - len(trials)) * largest
    if whole > _MOST_BYTES:
        value = f"{most} trials of up to {largest} bytes"
        allowed = (
            f"shorter values or fewer trials: parameters of at most {_MOST_BYTES} bytes in all"
        )
        raise InvalidRequest(
            f"space is {value!r}; allowed: {allowed}", field="space", value=value, allowed=allowed
        )


def _longest(values: Sequence[Any]) -> int:
    return max((bytes_of(str(value)) for value in values), default=_NUMBER_BYTES)


def _check_most(field: str, value: int, most: int, settings: StudySettings) -> None:
    if most > settings.trials_per_study:
        left = settings.trials_per_study - most + value
        raise common.refuse(field, value, f"at most {left} more trials")
