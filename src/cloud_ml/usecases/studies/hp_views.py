"""Studies as the ``hp`` resources of the original wire show them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cloud_ml.domain.records import Summary
from cloud_ml.domain.studies.space import Parameter
from cloud_ml.domain.studies.spec import Goal, StudyPhase, StudyRecord, StudySpec
from cloud_ml.usecases.access.identities import Organisation
from cloud_ml.usecases.jobs import views
from cloud_ml.usecases.masking import masked_parameters, masked_space

_GOALS = {Goal.MINIMIZE: "minimize", Goal.MAXIMIZE: "maximize"}
_OF_JOBS = (
    "job_name",
    "node_name",
    "cluster_name",
    "service_port",
    "cluster_env_var",
    "hyperparameters_name",
    "hyperparameters_goal",
    "hyperparameters_params",
)
"""Keys of the document of a train job that one of a study lacks."""


def hp_document(record: StudyRecord, organisation: Organisation) -> dict[str, Any]:
    """A study as submit and describe answer. Every key that the original client reads is there."""
    spec = record.spec
    document = views.tuning_document(record, organisation)
    shown = {key: value for key, value in document.items() if key not in _OF_JOBS}
    return shown | {
        "hp_name": record.key.name,
        "owner": record.owner,
        "optimization_type": _GOALS[spec.goal],
        "objectivevalue_name": spec.metric,
        "metrics_names": [one.metric for one in spec.objectives],
        "parametertype_configs": _configs(spec),
        "suggestion_algorithm": spec.algorithm if spec.space else "grid",
        "request_number": spec.max_trials,
    }


def hp_row(line: Summary, organisation: Organisation) -> dict[str, Any]:
    """A line of the list: its columns and nothing else, none of them null."""
    return {
        "org_id": str(organisation.number),
        "org_name": organisation.name,
        "hp_name": line.key.name,
        "state": views.tuning_state(StudyPhase(line.index), deleting=line.deleting),
        "create_time": views.original_time(line.created_at),
        "update_time": views.original_time(line.updated_at),
    }


def _configs(spec: StudySpec) -> Sequence[Mapping[str, Any]]:
    """The parameters; where all trials are named, the values that they have."""
    if spec.space:
        return [_config(parameter) for parameter in spec.space]
    found: dict[str, list[Any]] = {}
    for trial in map(masked_parameters, spec.trials):
        for name, value in trial.items():
            values = found.setdefault(name, [])
            if value not in values:
                values.append(value)
    return [_list(name, values) for name, values in found.items()]


def _config(parameter: Parameter) -> Mapping[str, Any]:
    masked: Any = masked_space({parameter.name: parameter.document()})[parameter.name]
    if not isinstance(masked, dict):
        return _list(parameter.name, masked)
    conditions = {"active_if": masked.pop("active_if")} if "active_if" in masked else {}
    if "values" in masked:
        return _list(parameter.name, masked["values"]) | conditions
    kind = masked.pop("type", "double")
    return {"name": parameter.name, "parametertype": kind, "feasible": masked} | conditions


def _list(name: str, values: Any) -> dict[str, Any]:
    numbers = isinstance(values, list) and not any(isinstance(one, (str, bool)) for one in values)
    kind = "discrete" if numbers else "categorical"
    return {"name": name, "parametertype": kind, "feasible": {"list": values}}
