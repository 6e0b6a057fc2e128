"""The folders in which trials of studies write. Blocking."""

from __future__ import annotations

from collections.abc import Iterator

from cloud_ml.domain.studies.spec import STUDY, StudyRecord, StudySpec, output_tag
from cloud_ml.errors import InvalidRequest
from cloud_ml.state.base import StateStore
from cloud_ml.state.matching import Match

_MOST_LOOKED_AT = 100


def check_output_folder(store: StateStore, org: str, spec: StudySpec) -> None:
    """Refuse a study whose trials would write over those of another one: trial 0 of both has the
    folder ``<output_path>/0``. So is one whose folder lies in that of a trial, which would take its
    event files for its own.

    A study of the original client may have the folder of one that has ended: its users submit a
    tuning again under another name.

    Raises:
        InvalidRequest: Another study, or a trial of it, has this ``output_path``.
    """
    folder = spec.job.output_path
    if folder is None or spec.local:
        return
    for output_path in (folder, *_of_trials_above(folder)):
        match = Match(tags=(output_tag(output_path),))
        for line in store.list(STUDY, org=org, match=match, limit=_MOST_LOOKED_AT).items:
            other = store.get(STUDY, line.key.uid)
            if other is not None and _is_in_the_way(other, spec):
                raise _taken(folder, other.key.name)


def _of_trials_above(folder: str) -> Iterator[str]:
    """What a study above has as ``output_path``, if ``folder`` is or lies in that of one of its trials."""
    scheme, separator, path = folder.rstrip("/").partition("://")
    parts = path.split("/")
    for depth, part in enumerate(parts):
        if depth and part.isascii() and part.isdecimal():
            yield scheme + separator + "/".join(parts[:depth])


def _taken(folder: str, study: str) -> InvalidRequest:
    return InvalidRequest(
        f"job.output_path is {folder[:300]}, where the trials of study {study} write",
        field="job.output_path",
        value=folder,
        allowed="a folder that no other study has",
        hint=f"Name another one, or delete that study: cloudml hp delete {study}",
    )


def _is_in_the_way(other: StudyRecord, spec: StudySpec) -> bool:
    if other.key.name == spec.job.job_name or other.delete_requested_at is not None:
        # One of the same name is this one, submitted again, or refused for its name.
        return False
    return not (spec.original and other.status.phase.over)
