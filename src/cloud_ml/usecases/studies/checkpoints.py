"""Of which trials a study keeps the checkpoints: what is asked for is checked, and shown."""

from __future__ import annotations

from dataclasses import replace

from cloud_ml.domain.studies.spec import StudySpec
from cloud_ml.errors import InvalidRequest
from cloud_ml.models.common import check_count, refuse
from cloud_ml.models.studies.study import KeptCheckpoints
from cloud_ml.settings.studies import StudySettings

_ALL = "all"
_COUNTS = {"none": 0, "best": 1}


def read_kept_checkpoints(
    keep_checkpoints: str | int, *, objectives: int, local: bool, settings: StudySettings
) -> int | None:
    """Of how many of the best trials the checkpoints are kept; ``None`` for all trials.

    Raises:
        InvalidRequest: It is none of what is allowed, or the study does not know its checkpoints.
    """
    text = (
        keep_checkpoints.strip().lower() if isinstance(keep_checkpoints, str) else keep_checkpoints
    )
    if text == _ALL:
        return None
    if local:
        allowed = "all, as a loop of yours runs the trials and keeps their checkpoints"
        raise refuse("keep_checkpoints", keep_checkpoints, allowed)
    most = settings.trials_per_study
    try:
        count = _COUNTS[text] if text in _COUNTS else check_count("", text, most=most)
    except InvalidRequest:
        allowed = f"all, best, none, or a number of trials, 1 to {most}"
        raise refuse("keep_checkpoints", keep_checkpoints, allowed) from None
    if count > 1 and objectives > 1:
        allowed = "all, none, or best, which keeps those of the Pareto front"
        raise refuse("keep_checkpoints", keep_checkpoints, allowed)
    return count


def with_kept_checkpoints(
    spec: StudySpec, request: KeptCheckpoints, settings: StudySettings
) -> StudySpec:
    """The study with another policy.

    Raises:
        InvalidRequest: As for a new study.
    """
    count = read_kept_checkpoints(
        request.keep_checkpoints,
        objectives=len(spec.objectives),
        local=spec.local,
        settings=settings,
    )
    return replace(spec, keep_checkpoints=count)


def show_kept_checkpoints(count: int | None) -> str | int:
    """The same as it is shown."""
    words = {number: word for word, number in _COUNTS.items()}
    return _ALL if count is None else words.get(count, count)
