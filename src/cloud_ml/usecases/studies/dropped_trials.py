"""Trials of users that have not begun, and that a changed space excludes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from cloud_ml.domain.studies.named_trials import Misfit, check_trial, find_misfit
from cloud_ml.domain.studies.spec import StudySpec, StudyStatus
from cloud_ml.usecases.masking import masked_parameters

_MOST_NAMED, _LONGEST = 100, 300
_Trials = tuple[dict[str, Any], ...]


def without_excluded_trials(spec: StudySpec, status: StudyStatus) -> StudySpec:
    """The study without trials of users that have not begun and do not fit its space. Others get
    constants of the space that they leave out.
    """
    queued = sum(trial.queued for trial in status.trials)
    named = len(status.trials) - queued
    trials, first = _split(spec, spec.trials, named)
    later, second = _split(spec, spec.queued, queued)
    excluded = [*first, *second]
    return replace(
        spec,
        trials=trials,
        queued=later,
        max_trials=spec.max_trials - len(excluded),
        dropped=tuple(_sentences(excluded)),
    )


def _split(
    spec: StudySpec, trials: _Trials, begun: int
) -> tuple[_Trials, list[tuple[dict[str, Any], Misfit]]]:
    """The trials that have begun or fit, and the others with what does not fit."""
    kept, excluded = list(trials[:begun]), []
    for trial in trials[begun:]:
        misfit = find_misfit(spec.space, spec.constraints, trial)
        if misfit is None:
            kept.append(dict(check_trial(spec.space, trial, "trials", spec.constraints)))
        else:
            excluded.append((trial, misfit))
    return tuple(kept), excluded


def _sentences(excluded: list[tuple[dict[str, Any], Misfit]]) -> Iterable[str]:
    for trial, misfit in excluded[:_MOST_NAMED]:
        yield _sentence(trial, misfit)
    if (more := len(excluded) - _MOST_NAMED) > 0:
        yield f"and {more} more trials of yours"


def _sentence(trial: Mapping[str, Any], misfit: Misfit) -> str:
    shown, name = masked_parameters(trial), misfit.parameter
    whole = " ".join(f"{key}={value}" for key, value in shown.items())[:_LONGEST]
    if not name:
        return f"trial {whole}: allowed is {misfit.allowed[:_LONGEST]}"
    if name not in trial:
        return f"trial {whole}: it has no {name}"
    if shown[name] != trial[name]:  # the values that are allowed are as secret
        return f"trial {whole}: {name} is {shown[name]}"
    value = str(shown[name])[:_LONGEST]
    return f"trial {whole}: {name} is {value}; allowed is {misfit.allowed[:_LONGEST]}"
