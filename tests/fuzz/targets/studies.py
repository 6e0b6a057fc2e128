"""Studies as they are sent."""

from __future__ import annotations

import json

from cloud_ml.domain.studies.constraints import LONGEST_CONSTRAINT, parse_constraint
from cloud_ml.domain.studies.named_trials import check_trial
from cloud_ml.domain.studies.spec import TrialStatus, trial_job
from cloud_ml.errors import InvalidRequest
from cloud_ml.models import codec
from cloud_ml.models.studies.hp_documents import read_hp_document
from cloud_ml.models.studies.study import NewStudy
from cloud_ml.settings import StudySettings
from cloud_ml.tuning import qmc
from cloud_ml.tuning.algorithms import suggest
from cloud_ml.tuning.base import problem_of
from cloud_ml.usecases.studies.studies import study_spec
from fuzz.harness import target

_JOB = '"name": "rates", "job": {"module_name": "m", "trainer_uri": "fds://bucket/a.whl"}'
_SETTINGS = StudySettings(trials_per_study=20, parallel_trials=5)


def _check_field(error: InvalidRequest) -> None:
    assert error.field


@target(
    "domain.studies.conditions",
    "domain.studies.constraints",
    "domain.studies.named_trials",
    "domain.studies.samplers",
    "domain.studies.space",
    "domain.studies.spec",
    "domain.studies.stopping",
    "domain.studies.values",
    seeds=[
        f'{{{_JOB}, "space": {{"lr": {{"min": 0.001, "max": 1, "scale": "log"}}}}}}',
        f'{{{_JOB}, "space": {{"layers": {{"min": 1, "max": 4, "type": "int"}}, "o": ["a", 1]}}, "algorithm": "grid"}}',
        f'{{{_JOB}, "space": {{"x": {{"min": 0, "max": 9, "type": "int"}}, "o": ["a", "b"]}}, "algorithm": "pbt", "algorithm_options": {{"population": 3, "factors": [0.5]}}}}',
        f'{{{_JOB}, "space": {{"x": {{"min": 0, "max": 9}}}}, "algorithm": "optuna:TPESampler", "algorithm_options": {{"group": true}}}}',
        f'{{{_JOB}, "space": {{"x": {{"min": 0, "max": 9}}}}, "algorithm": "optuna:nsgaii", "algorithm_options": {{"mutation_prob": 0.5}}}}',
        f'{{{_JOB}, "space": {{"x": [1, 2]}}, "repeats": 2, "parameters_as": "file"}}',
        f'{{{_JOB}, "trials": [{{"lr": 1}}], "objective": "accuracy:max", "max_failed": 0}}',
        f'{{{_JOB}, "space": {{"x": {{"min": 0, "max": 1, "step": 0.1}}}}, "max_trials": 3}}',
        f'{{{_JOB}, "space": {{"x": [1, 2]}}, "objective": ["a:min", "b:max"], "algorithm": "nsga2"}}',
        f'{{{_JOB}, "space": {{"o": ["a", "b"], "c": {{"value": 3}}, "x": {{"values": [1, 2], "active_if": {{"o": "a"}}}}}}}}',
        f'{{{_JOB}, "space": {{"a": [1, 2], "b": {{"min": 0, "max": 9}}}}, "constraints": ["a < 2 * (b + 1)"]}}',
    ],
    words=['"constraints": ', '<= ', '`', '((', '-', '*', '"active_if": ', '"value": ', '"algorithm": "grid"', '"algorithm": "pbt"', '"algorithm_options": {"quantile": 0.5}', '"stopper": "asha"', '"stopper_options": {"above": 1}', '"min": ', '"max": ', '"step": ', '"type": "int"', '"scale": "log"', "[", "]", "{", "}",
           "1e308", "NaN", "-0.0", "true", '"job_args": "', "'", '"array": "0-1"'],
)  # fmt: skip
def new_study(data: bytes) -> None:
    """A study is refused by its field, or each of its trials is a job with all parameters."""
    try:
        document = json.loads(data)
        if not isinstance(document, dict):
            return
        spec = study_spec(codec.decode(NewStudy, document), _SETTINGS)
    except InvalidRequest as error:
        _check_field(error)
        return
    except (ValueError, RecursionError):
        return
    assert 1 <= spec.max_trials <= _SETTINGS.trials_per_study
    for number in range(spec.max_trials):
        suggestion = suggest(spec, (), number)
        parameters = dict(
            qmc.suggest(problem_of(spec, (), number))
            if suggestion is None
            else suggestion.parameters
        )
        check_trial(spec.space, parameters, "trial", spec.constraints)
        try:
            job = trial_job("rates", spec, TrialStatus(number=number, parameters=parameters))
        except InvalidRequest as error:  # all of them together are too long for a job
            _check_field(error)
            return
        assert job.job_name == f"rates-hp-{number}"


@target(
    "domain.studies.constraints",
    seeds=["a < b", "2 * (a + 1) / -b >= 1e3 != a", "`a` == a"],
    words=["<= ", "a", "b", "`", "(", ")", "-", "1e308", "/ 0", "\u0660"],
)
def constraint(data: bytes) -> None:
    """A text is refused, or what it says of numbers is true or false."""
    try:
        found = parse_constraint(data.decode("utf-8", "replace")[:LONGEST_CONSTRAINT])
    except ValueError:
        return
    values = dict.fromkeys(found.names, 0.5)
    assert found.holds(values) in (True, False)
    assert found.cost <= LONGEST_CONSTRAINT


_CODE = '"hp_name": "rates", "module_name": "m", "trainer_uri": "fds://bucket/a.whl"'
_CONFIG = '{"name": "--lr", "parametertype": "double", "feasible": {"min": "0.01", "max": "1"}}'
_CONTAINER = (
    '{"command": ["python", "-m", "m", "--lr=${trialParameters.rate}"], '
    '"resources": {"limits": {"memory": "1Gi", "cpu": "500m"}}}'
)
_EXPERIMENT = (
    f'{{{_CODE}, "apiVersion": "kubeflow.org/v1beta1", "kind": "Experiment", "spec": {{'
    '"objective": {"type": "minimize", "objectiveMetricName": "loss"}, "parameters": ['
    '{"name": "lr", "parameterType": "double", "feasibleSpace": {"min": "0.01", "max": "1"}}], '
    '"trialTemplate": {"trialParameters": [{"name": "rate", "reference": "lr"}], "trialSpec": '
    f'{{"kind": "Job", "spec": {{"template": {{"spec": {{"containers": [{_CONTAINER}]}}}}}}}}}}}}}}'
)


@target(
    "models.studies.foreign_studies",
    "models.studies.hp_documents",
    "models.studies.katib",
    seeds=[f'{{{_CODE}, "parametertype_configs": [{_CONFIG}]}}', _EXPERIMENT],
    words=['"feasible": ', '"list": ["a"]', '"parameterType": "int"', "${trialParameters.", "Gi", "m", '"sh", "-c", "', "1e999", "9" * 40, "null", "{}", "[]"],
)  # fmt: skip
def foreign_study(data: bytes) -> None:
    """A document of another tool is refused by its field, or it is a study of ours."""
    try:
        document = json.loads(data)
        if not isinstance(document, dict):
            return
        found = read_hp_document(document)
        assert len(found.notes) <= 100 * len(data)
        study_spec(found.study, _SETTINGS)
    except InvalidRequest as error:
        _check_field(error)
    except (ValueError, RecursionError):
        return
