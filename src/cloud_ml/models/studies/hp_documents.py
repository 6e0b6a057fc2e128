"""Studies as the ``hp`` resources of the original client describe them: the fields of a train job,
and beside them those of Katib's first ``StudyConfig``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from cloud_ml.models.common import refuse
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.models.studies.foreign_studies import (
    ORIGINAL,
    ForeignStudy,
    count_of,
    goal_of,
    number_of,
    object_of,
    space_of,
    text_of,
)
from cloud_ml.models.studies.katib import read_experiment
from cloud_ml.models.studies.study import NewStudy

METRIC = "training/hptuning/metric"
"""The tag of the scalar that trainers of the original platform write."""
_ALIASES = {
    "optimizationtype": "optimization_type", "objectivevaluename": "objectivevalue_name",
    "objective_value_name": "objectivevalue_name", "metricsnames": "metrics_names",
    "metrics": "metrics_names", "parameterconfigs": "parametertype_configs",
    "parameter_configs": "parametertype_configs", "requestcount": "request_number",
    "requestnumber": "request_number", "suggestionAlgorithm": "suggestion_algorithm",
    "optimizationgoal": "optimization_goal", "parallelTrialCount": "parallel_trial_count",
    "maxFailedTrialCount": "max_failed_trial_count", "maxTrialCount": "request_number",
}  # fmt: skip
"""Katib's spellings of that time, and those of the original client."""
_OURS = (
    "optimization_type", "objectivevalue_name", "metrics_names", "parametertype_configs",
    "suggestion_algorithm", "request_number", "optimization_goal", "parallel_trial_count",
    "max_failed_trial_count",
)  # fmt: skip
_OF_NO_USE = frozenset({"hp_name", "owner", "org_id", "hyperparameters", "save_mode"})
_JOB = frozenset(field.name for field in dataclasses.fields(TrainJob)) - {"job_name"}
_EXPERIMENT = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})
_MOST_NOTES = 20


def is_hp_document(document: Mapping[str, Any]) -> bool:
    """Whether this is a study of the original client."""
    return "hp_name" in document


def read_hp_document(document: Mapping[str, Any]) -> ForeignStudy:
    """The study that a document of the original client asks for.

    Raises:
        InvalidRequest: Names the field that is wrong, and what is allowed.
    """
    name = text_of("hp_name", document.get("hp_name"))
    if document.get("save_mode"):
        raise refuse("save_mode", document["save_mode"], "false: a study runs at once")
    job = {key: value for key, value in document.items() if key in _JOB - _OF_NO_USE}
    for key in ("module_name", "trainer_uri"):
        text_of(key, document.get(key))
    if "spec" in document:
        found = read_experiment(document, job)
        study = dataclasses.replace(found.study, name=name)
        return ForeignStudy(study, (*found.notes, *_ignored(document, _EXPERIMENT)))
    study_fields = _renamed(document)
    fields = _fields(study_fields)
    if document.get("hyperparameters") is not None:
        fields |= _named_trials(object_of("hyperparameters", document["hyperparameters"]), job)
    elif "parametertype_configs" not in study_fields:
        raise refuse("parametertype_configs", None, "a list of parameters, or hyperparameters")
    study = NewStudy(name=name, job=job, **fields)
    return ForeignStudy(study, _ignored(document, frozenset({*_OURS, *_ALIASES})))


def _renamed(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of the study by the names of the response."""
    study_fields: dict[str, Any] = {}
    for key, value in document.items():
        name = _ALIASES.get(key, key)
        if name not in _OURS or value is None:
            continue
        if name in study_fields:
            raise refuse(key, value, f"{name} once: it is there under another name, too")
        study_fields[name] = value
    return study_fields


def _fields(study_fields: Mapping[str, Any]) -> dict[str, Any]:
    metric = text_of("objectivevalue_name", study_fields.get("objectivevalue_name", METRIC))
    goal = goal_of("optimization_type", study_fields.get("optimization_type", "minimize"))
    _check_names(study_fields.get("metrics_names", []))
    fields: dict[str, Any] = {"objective": f"{metric}:{goal}"}
    if "parametertype_configs" in study_fields:
        fields["space"] = space_of(
            "parametertype_configs", study_fields["parametertype_configs"], ORIGINAL
        )
    if "suggestion_algorithm" in study_fields:
        fields["algorithm"] = text_of("suggestion_algorithm", study_fields["suggestion_algorithm"])
    if "optimization_goal" in study_fields:
        fields["target"] = float(number_of("optimization_goal", study_fields["optimization_goal"]))
    for name, ours in (
        ("request_number", "max_trials"),
        ("parallel_trial_count", "parallel"),
        ("max_failed_trial_count", "max_failed"),
    ):
        if name in study_fields:
            fields[ours] = count_of(name, study_fields[name])
    return fields


def _check_names(names: Any) -> None:
    """All metrics that a job reports are kept, so these names change nothing."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise refuse("metrics_names", names, "a list of names")


def _named_trials(hyperparameters: Mapping[str, Any], job: dict[str, Any]) -> dict[str, Any]:
    """The fields of a study whose trials are named one by one, as on the slide."""
    trials = check_tuning(hyperparameters)
    job["output_path"] = hyperparameters["output_path"]
    metric = f"{METRIC}:{goal_of('hyperparameters.goal', hyperparameters['goal'])}"
    return {
        "objective": metric, "space": {}, "algorithm": "grid", "trials": trials,
        "max_trials": len(trials), "max_failed": len(trials),
    }  # fmt: skip


def check_tuning(hyperparameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The trials of ``hyperparameters``, each with its flags by name.

    Raises:
        InvalidRequest: Names the field that is wrong, and what is allowed.
    """
    for name in hyperparameters:
        if name not in ("goal", "output_path", "params"):
            raise refuse(
                f"hyperparameters.{name}", hyperparameters[name], "one of goal, output_path, params"
            )
    goal, params = hyperparameters.get("goal"), hyperparameters.get("params")
    if not isinstance(goal, str) or goal.upper() not in ("MINIMIZE", "MAXIMIZE"):
        raise refuse("hyperparameters.goal", goal, "MINIMIZE or MAXIMIZE")
    if not isinstance(params, list) or not params:
        raise refuse("hyperparameters.params", params, "a list of objects, one for each trial")
    for number, trial in enumerate(params):
        if not isinstance(trial, dict):
            where = f"hyperparameters.params[{number}]"
            raise refuse(where, trial, "an object of flags and values")
    folder = hyperparameters.get("output_path")
    if not isinstance(folder, str) or not folder:
        raise refuse("hyperparameters.output_path", folder, "a URI such as fds://bucket/folder")
    return [dict(sorted(trial.items())) for trial in params]


def _ignored(document: Mapping[str, Any], known: frozenset[str]) -> list[str]:
    """Sentences about the fields that we do not know."""
    names = [name for name in document if name not in known | _JOB | _OF_NO_USE]
    notes = [f"the field {name[:80]!r} is not known here and was ignored" for name in names]
    if len(notes) > _MOST_NOTES:
        more = f"{len(notes) - _MOST_NOTES} more unknown fields were ignored"
        return [*notes[:_MOST_NOTES], more]
    return notes
