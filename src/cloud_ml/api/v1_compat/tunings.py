"""Tunings below ``/cloud_ml/v1/train``: studies that answer as the train jobs that they were. Their
functions are blocking.
"""

from __future__ import annotations

from typing import Any

from cloud_ml.api.auth import Call
from cloud_ml.api.platform import Platform
from cloud_ml.domain.jobs.kind import TRAIN_JOB, TrainJobRecord
from cloud_ml.domain.studies.spec import STUDY, StudyRecord, trial_number
from cloud_ml.engines.base import Capacity
from cloud_ml.errors import AlreadyExists
from cloud_ml.models.studies.study import STUDIES
from cloud_ml.usecases.jobs import views
from cloud_ml.usecases.studies.original_tunings import Tuning


def submit(here: Platform, call: Call, tuning: Tuning, capacity: Capacity) -> dict[str, Any]:
    """Take a tuning. Raises what a study raises, and ``AlreadyExists`` for a job of that name."""
    if here.store.find(TRAIN_JOB, call.caller.org, tuning.name) is not None:
        raise AlreadyExists(
            f"a job named {tuning.name} exists already",
            field="job_name",
            value=tuning.name,
            allowed="a name that is not in use; delete the job to use it again",
        )
    record = here.resources_of[STUDIES.plural].create(call.caller, tuning, capacity, once=call.once)
    return views.tuning_document(record, call.caller.organisation)


def find(here: Platform, scope: str | None, name: str) -> StudyRecord | None:
    """The tuning of that name; ``None`` if there is none, or it is somebody else's."""
    found = here.store.find(STUDY, scope, name) if scope is not None else None
    return found if found is not None and found.spec.original else None


def of_trial(here: Platform, job: TrainJobRecord) -> StudyRecord | None:
    """The study of which a job is a trial."""
    if job.parent is None or job.parent.kind != STUDY.name:
        return None
    return here.store.get(STUDY, job.parent.uid)


def fields_of_trial(here: Platform, job: TrainJobRecord) -> dict[str, Any]:
    """What the document of a trial says about its tuning; nothing of other jobs."""
    study = of_trial(here, job)
    return {} if study is None else views.tuning_fields(study, trial_number(job.key.name))


def delete(here: Platform, call: Call, scope: str | None, name: str) -> dict[str, Any]:
    """Ask for the removal of a tuning and its trials."""
    record = here.resources_of[STUDIES.plural].delete(scope, name, call.caller, once=call.once)
    return {
        "job_name": record.key.name,
        "state": "deleting",
        "message": f"{record.key.name} and its trials are being deleted",
    }
