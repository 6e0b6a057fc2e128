"""A request for a changed copy of a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cloud_ml.errors import InvalidRequest
from cloud_ml.models import common
from cloud_ml.models.fields import near_name
from cloud_ml.models.jobs.train_job import TrainJob

STUDY_LABEL = "study"
"""The label of a trial's job with the name of its study."""
REPRODUCES_LABEL = "reproduces"
"""The label of a job that runs another one again: its uid."""
_NOT_CHANGED = ("job_name", "environment", "hyperparameters")
_CHANGED = [name for name in TrainJob.__dataclass_fields__ if name not in _NOT_CHANGED]
_MOST = 200


@dataclass(frozen=True, kw_only=True)
class JobClone:
    """What the copy of a job has instead.

    ``arguments`` are flags of the trainer and their new values, such as ``{"lr": 0.1}``; null
    removes a flag. ``environment`` sets variables beside those of the job; null removes one.
    ``fields`` replaces other fields of the job, such as ``{"memory_limit": "2G"}``.
    """

    job_name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)

    def validate(self) -> None:
        """Check what can be checked without the job.

        Raises:
            InvalidRequest: The first field that is wrong.
        """
        common.check_name("job_name", self.job_name)
        for what, values in (("arguments", self.arguments), ("environment", self.environment)):
            if len(values) > _MOST:
                raise common.refuse(what, f"{len(values)} values", f"at most {_MOST}")
            for name, value in values.items():
                _check_value(f"{what}.{name[:80]}", name, value)
        for name in self.fields:
            if name not in _CHANGED:
                near = near_name(name[:80], _CHANGED, TrainJob.field_aliases)  # type: ignore[attr-defined]
                raise InvalidRequest(
                    f"fields.{name[:80]} is not a field that a copy can change{near}",
                    field=f"fields.{name[:80]}",
                    value=name[:80],
                    allowed="a field of a job, such as memory_limit",
                )


def _check_value(path: str, name: str, value: Any) -> None:
    if not name.strip("-") or "=" in name or not name.isprintable() or " " in name:
        raise common.refuse(path, name[:80], "a name without spaces and =")
    if value is not None and not isinstance(value, (str, int, float)):
        raise common.refuse(path, value, "a text, a number, true, false or null")


def labels_of_copy(name: str, labels: Mapping[str, str] | None) -> dict[str, str]:
    """The labels that a copy of the job ``name`` keeps: those that users gave.

    The platform gives a trial the name of its study, and a job that runs another one again the uid
    of that one. A copy is neither.
    """
    return {
        key: value
        for key, value in (labels or {}).items()
        if key != REPRODUCES_LABEL and not (key == STUDY_LABEL and is_trial_of(value, name))
    }


def is_trial_of(study: str, name: str) -> bool:
    """Whether a job of this ``name`` is a trial of the study, by its name, such as ``rates-hp-3``."""
    before, _, number = name.rpartition("-hp-")
    return before == study and number.isascii() and number.isdecimal()
