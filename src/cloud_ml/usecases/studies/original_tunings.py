"""Tunings as the original interface asks for them: a train job with ``hyperparameters``, which is a
study whose trials are all named.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cloud_ml.domain.studies.ranking import best_of
from cloud_ml.domain.studies.spec import (
    Goal,
    StudyRecord,
    TrialState,
    TrialStatus,
    arguments_of,
    trial_folder,
    trial_name,
)
from cloud_ml.models import codec
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.models.secrets.secret import MASK
from cloud_ml.models.studies.hp_documents import METRIC, check_tuning
from cloud_ml.models.studies.study import NewStudy
from cloud_ml.usecases.masking import masked_parameters

_GOALS = {"MINIMIZE": Goal.MINIMIZE, "MAXIMIZE": Goal.MAXIMIZE}
_STATES = {
    TrialState.RUNNING: "running",
    TrialState.COMPLETED: "completed",
    TrialState.STOPPED: "stopped",
}
_NO_TRIAL = {"metric": None, "params": "", "step": None, "state": ""}


@dataclass(frozen=True, kw_only=True)
class OriginalStudy(NewStudy):
    """A study that came over the original wire."""


@dataclass(frozen=True, kw_only=True)
class Tuning(OriginalStudy):
    """One that came as a train job with ``hyperparameters``."""


def tuning_of(job: TrainJob) -> Tuning:
    """The study that a train job with ``hyperparameters`` asks for.

    Raises:
        InvalidRequest: Names the field of ``hyperparameters`` that is wrong.
    """
    hyperparameters = job.hyperparameters or {}
    trials = check_tuning(hyperparameters)
    folder, goal = hyperparameters["output_path"], _GOALS[hyperparameters["goal"].upper()]
    document = codec.encode(job) | {"hyperparameters": None, "output_path": folder}
    del document["job_name"]
    return Tuning(
        name=job.job_name,
        job=document,
        objective=f"{METRIC}:{goal}",
        parallel=len(trials),
        max_failed=len(trials),
        trials=trials,
    )


def report_of(record: StudyRecord) -> Mapping[str, Any]:
    """The report of a tuning, as ``jobs hp`` of the original client prints it."""
    spec, trials = record.spec, record.status.trials
    best = best_of(spec, trials)
    return {
        "goal": "MINIMIZE" if spec.goal is Goal.MINIMIZE else "MAXIMIZE",
        "trialCount": spec.max_trials,
        "best_trials": _NO_TRIAL if best is None else _show_trial(record, best),
        "trials": [_show_trial(record, trial) for trial in trials],
    }


def trials_of(record: StudyRecord) -> Mapping[str, Any]:
    """The trials of a study, as ``hp trials`` of the original client prints them."""
    best = best_of(record.spec, record.status.trials)
    return {
        "data": [_show_with_name(record, trial) for trial in record.status.trials],
        "best_trial": {} if best is None else _show_with_name(record, best),
    }


def _show_with_name(record: StudyRecord, trial: TrialStatus) -> Mapping[str, Any]:
    name = trial_name(record.key.name, trial.number)
    return {"trial_id": name} | dict(_show_trial(record, trial))


def _show_trial(record: StudyRecord, trial: TrialStatus) -> Mapping[str, Any]:
    return {
        "metric": trial.value,
        "params": " ".join(_arguments(record, trial)),
        "step": trial.step,
        "state": _STATES.get(trial.state, "failed"),
    }


def _arguments(record: StudyRecord, trial: TrialStatus) -> Sequence[str]:
    """The arguments that a trial has beyond those of the job."""
    folder = trial_folder(record.spec, trial.number)
    own = [f"--output_path={folder}"] if folder else []
    words = (*own, *arguments_of(masked_parameters(trial.parameters)))
    return [word if word.endswith(f"={MASK}") else shlex.quote(word) for word in words]
