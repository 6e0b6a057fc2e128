"""Studies that begin with what earlier ones have found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from cloud_ml.domain.record_sizes import bytes_of
from cloud_ml.domain.studies.named_trials import fits
from cloud_ml.domain.studies.ranking import costs_of
from cloud_ml.domain.studies.spec import (
    PriorTrial,
    StudyRecord,
    StudySpec,
    TrialState,
)
from cloud_ml.errors import InvalidRequest
from cloud_ml.models.common import refuse
from cloud_ml.models.studies.study import NewStudy
from cloud_ml.settings.sizes import MIB
from cloud_ml.tuning.algorithms import LEARNING_FROM_OTHERS, learns_from_others

FindStudy = Callable[[str, str], StudyRecord | None]
"""The study of an organisation that has a name."""
MOST_STUDIES, MOST_TRIALS, MOST_BYTES = 10, 500, MIB
"""Trials are kept with the study, which is read as a whole."""
_COUNTED = (TrialState.COMPLETED, TrialState.EARLY_STOPPED)


def check_warm_start(new: NewStudy, algorithm: str) -> tuple[str, ...]:
    """The names of earlier studies, checked as far as they can be without them.

    Raises:
        InvalidRequest: The algorithm learns nothing from other studies, or there are too many.
    """
    names = tuple(dict.fromkeys(new.warm_start))
    if names and not learns_from_others(algorithm):
        allowed = (
            f"no earlier study, as the algorithm is {algorithm}; {', '.join(LEARNING_FROM_OTHERS)} "
        )
        raise refuse("warm_start", list(names), f"{allowed}learn from them")
    if len(names) > MOST_STUDIES:
        raise refuse("warm_start", len(names), f"at most {MOST_STUDIES} studies")
    return names


def with_prior_trials(spec: StudySpec, org: str, find: FindStudy) -> StudySpec:
    """The spec with the trials of its earlier studies that fit its space: of more than 500, or more
    than a mebibyte, the newest. They are kept with the study, so what becomes of the earlier ones changes nothing.

    Raises:
        InvalidRequest: There is no such study, it has not ended, it has another objective, or no
            trial of all of them fits.
    """
    if not spec.warm_start:
        return spec
    found: list[PriorTrial] = []
    for place, name in enumerate(spec.warm_start):
        field = f"warm_start[{place}]"
        study = find(org, name)
        _check_study(field, name, study, spec)
        assert study is not None
        found += _fitting_trials(spec, study)
    if not found:
        allowed = "studies with a completed trial that fits the space"
        raise refuse("warm_start", list(spec.warm_start), allowed)
    return replace(spec, prior=tuple(_newest(found)))


def _newest(found: Sequence[PriorTrial]) -> Sequence[PriorTrial]:
    """The last ones that there is room for, the very last one in any case."""
    size, first = 0, len(found)
    for place in reversed(range(max(0, len(found) - MOST_TRIALS), len(found))):
        size += bytes_of(found[place])
        if size > MOST_BYTES and first < len(found):
            break
        first = place
    return found[first:]


def _check_study(field: str, name: str, study: StudyRecord | None, spec: StudySpec) -> None:
    if study is None or study.delete_requested_at is not None:
        raise refuse(field, name, "a study of your organisation")
    if not study.status.phase.over:
        raise InvalidRequest(
            f"{field} is {name}, which is {study.status.phase}; allowed: a study that has ended",
            field=field,
            value=name,
            allowed="a study that has ended",
            hint=f"Wait for it: cloudml hp wait {name}",
        )
    if study.spec.objectives != spec.objectives:
        expected = ", ".join(map(str, spec.objectives))
        theirs = ", ".join(map(str, study.spec.objectives))
        raise refuse(
            field, name, f"a study with the objective {expected}; that of {name} is {theirs}"
        )


def _fitting_trials(spec: StudySpec, study: StudyRecord) -> Sequence[PriorTrial]:
    return [
        PriorTrial(parameters=trial.parameters, costs=costs)
        for trial in study.status.trials
        if trial.state in _COUNTED
        and (costs := costs_of(study.spec, trial)) is not None
        and fits(spec.space, spec.constraints, trial.parameters)
    ]
