"""The folders in which trials of studies write. Blocking."""

from __future__ import annotations

from collections.abc import Iterator

from cloud_ml.domain.studies.spec import (
    STUDY,
    StudyRecord,
    StudySpec,
    inside_tag,
    output_tag,
    trial_folders_above,
)
from cloud_ml.errors import InvalidRequest
from cloud_ml.state.base import StateStore
from cloud_ml.state.matching import Match

_MOST_LOOKED_AT = 100


def check_output_folder(store: StateStore, org: str, spec: StudySpec, most_trials: int) -> None:
    """Refuse a study whose trials would write over those of another one: trial 0 of both has the
    folder ``<output_path>/0``. So is one whose folder lies in that of a trial, which would take its
    event files for its own, and one of whose trials would have a folder around another study's.

    A study may be extended to ``most_trials``. One of the original client may have the folder of
    one that has ended: its users submit a tuning again under another name.

    Raises:
        InvalidRequest: Another study, or a trial of it, has this ``output_path``, or a trial of this
            one would have a folder that is, or is around, the ``output_path`` of another.
    """
    folder = spec.job.output_path
    if folder is None or spec.local:
        return
    for other in _others(store, org, spec, output_tag(folder)):
        raise _taken(folder, other.key.name)
    for above, number in trial_folders_above(folder):
        for other in _others(store, org, spec, output_tag(above)):
            if number < _most_numbers(other.spec, most_trials):
                raise _taken(folder, other.key.name)
    for other in _others(store, org, spec, inside_tag(folder)):
        for above, number in trial_folders_above(other.spec.job.output_path or ""):
            if above == folder.rstrip("/") and number < _most_numbers(spec, most_trials):
                raise _around(folder, number, other)


def _others(store: StateStore, org: str, spec: StudySpec, tag: str) -> Iterator[StudyRecord]:
    match = Match(tags=(tag,))
    for line in store.list(STUDY, org=org, match=match, limit=_MOST_LOOKED_AT).items:
        other = store.get(STUDY, line.key.uid)
        if other is not None and _is_in_the_way(other, spec):
            yield other


def _most_numbers(spec: StudySpec, most_trials: int) -> int:
    """How many trials there may be, with repeats of the best."""
    return most_trials + spec.repeats * spec.repeat_best


def _taken(folder: str, study: str) -> InvalidRequest:
    return InvalidRequest(
        f"job.output_path is {folder[:300]}, where the trials of study {study} write",
        field="job.output_path",
        value=folder,
        allowed="a folder that no other study has",
        hint=f"Name another one, or delete that study: cloudml hp delete {study}",
    )


def _around(folder: str, number: int, other: StudyRecord) -> InvalidRequest:
    study = other.key.name
    return InvalidRequest(
        f"job.output_path is {folder[:300]}, and the folder of its trial {number} would hold that of "
        f"study {study}, {(other.spec.job.output_path or '')[:300]}",
        field="job.output_path",
        value=folder,
        allowed="a folder whose trials have folders without those of other studies",
        hint=f"Name another one, or delete that study: cloudml hp delete {study}",
    )


def _is_in_the_way(other: StudyRecord, spec: StudySpec) -> bool:
    if other.key.name == spec.job.job_name or other.delete_requested_at is not None:
        # One of the same name is this one, submitted again, or refused for its name.
        return False
    return not (spec.original and other.status.phase.over)
