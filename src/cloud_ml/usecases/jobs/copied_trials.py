"""Documents of trials that are submitted again, as jobs of their own. Blocking."""

from __future__ import annotations

from dataclasses import replace

from cloud_ml.domain.studies.spec import STUDY, StudyRecord, TrialStatus, trial_job
from cloud_ml.models.jobs.clone import STUDY_LABEL, is_trial_of
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.state.base import StateStore


def without_label_of_study(store: StateStore, org: str, job: TrainJob) -> TrainJob:
    """The job without the label of a study, if its document is that of a trial.

    It is one if the study has a trial with the same code, arguments and variables, or if its name
    is that of a trial. Others with such a label are of users, who find a job beside those of a
    study.
    """
    labels = dict(job.labels or {})
    study = labels.pop(STUDY_LABEL, None)
    if study is None:
        return job
    if not is_trial_of(study, job.job_name):
        record = store.find(STUDY, org, study)
        if record is None or STUDY_LABEL in (record.spec.job.labels or {}):
            return job
        if not any(_is_document_of(record, trial, job) for trial in record.status.trials):
            return job
    return replace(job, labels=labels or None)


def _is_document_of(study: StudyRecord, trial: TrialStatus, job: TrainJob) -> bool:
    made = trial_job(study.key.name, study.spec, trial)
    return (
        made.arguments() == job.arguments()
        and (made.environment or {}) == (job.environment or {})
        and (made.trainer_uri, made.module_name) == (job.trainer_uri, job.module_name)
    )
