"""Studies in the documents of the original client and of Katib."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from cloud_ml.errors import InvalidRequest
from cloud_ml.models.studies.hp_documents import METRIC, read_hp_document

HP: dict[str, Any] = {
    "hp_name": "rates",
    "module_name": "trainer.task",
    "trainer_uri": "fds://cloudml/rates.tar.gz",
    "cpu_limit": "0.5",
    "enable_rank": 0,
    "owner": "team",
    "optimization_type": "maximize",
    "objectivevalue_name": "accuracy",
    "metrics_names": ["accuracy", "loss"],
    "parametertype_configs": [
        {"name": "--lr", "parametertype": "double", "feasible": {"min": "0.01", "max": "0.03"}},
        {"name": "--layers", "parametertype": "int", "feasible": {"min": "1", "max": "4"}},
        {"name": "--batch", "parametertype": "discrete", "feasible": {"list": ["16", "32"]}},
        {"name": "optimizer", "parametertype": "categorical", "feasible": {"list": ["sgd", "adam"]}},
    ],
    "suggestion_algorithm": "random",
    "request_number": 6,
}  # fmt: skip

EXPERIMENT: dict[str, Any] = {
    "apiVersion": "kubeflow.org/v1beta1",
    "kind": "Experiment",
    "metadata": {"namespace": "kubeflow", "name": "digits"},
    "spec": {
        "objective": {
            "type": "minimize",
            "goal": 0.001,
            "objectiveMetricName": "Validation-loss",
            "additionalMetricNames": ["loss"],
        },
        "algorithm": {
            "algorithmName": "bayesianoptimization",
            "algorithmSettings": [{"name": "random_state", "value": "10"}],
        },
        "earlyStopping": {
            "algorithmName": "medianstop",
            "algorithmSettings": [
                {"name": "min_trials_required", "value": "3"},
                {"name": "start_step", "value": "5"},
            ],
        },
        "parallelTrialCount": 3,
        "maxTrialCount": 12,
        "maxFailedTrialCount": 2,
        "parameters": [
            {
                "name": "lr",
                "parameterType": "double",
                "feasibleSpace": {"min": "0.0001", "max": "0.05", "distribution": "logUniform"},
            },
            {
                "name": "num-layers",
                "parameterType": "int",
                "feasibleSpace": {"min": "2", "max": "6", "step": "2"},
            },
        ],
        "trialTemplate": {
            "primaryContainerName": "training",
            "trialParameters": [
                {"name": "learningRate", "description": "rate", "reference": "lr"},
                {"name": "layers", "reference": "num-layers"},
            ],
            "trialSpec": {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "spec": {
                    "template": {
                        "spec": {
                            "containers": [
                                {
                                    "name": "training",
                                    "image": "docker.io/kubeflowkatib/pytorch-mnist-cpu:latest",
                                    "command": [
                                        "python3",
                                        "/opt/pytorch-mnist/mnist.py",
                                        "--epochs=1",
                                        "--lr=${trialParameters.learningRate}",
                                        "--depth",
                                        "${trialParameters.layers}",
                                    ],
                                    "env": [{"name": "MODE", "value": "fast"}],
                                    "resources": {"limits": {"memory": "1Gi", "cpu": "500m"}},
                                }
                            ],
                            "restartPolicy": "Never",
                        }
                    }
                },
            },
        },
    },
}


def changed(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The document with another value at ``a.b.0.c``."""
    whole = copy.deepcopy(document)
    found: Any = whole
    *before, last = path.split(".")
    for key in before:
        found = found[int(key)] if isinstance(found, list) else found[key]
    found[last] = value
    return whole


def test_a_document_of_the_original_client() -> None:
    study = read_hp_document(HP).study
    assert study.name == "rates"
    assert study.job == {
        "module_name": "trainer.task", "trainer_uri": "fds://cloudml/rates.tar.gz",
        "cpu_limit": "0.5", "enable_rank": 0,
    }  # fmt: skip
    assert study.space == {
        "lr": {"min": 0.01, "max": 0.03},
        "layers": {"type": "int", "min": 1, "max": 4},
        "batch": [16, 32],
        "optimizer": ["sgd", "adam"],
    }
    assert (study.objective, study.algorithm, study.max_trials) == ("accuracy:max", "random", 6)


def test_the_spelling_of_a_study_job_of_katib() -> None:
    names = {
        "optimization_type": "optimizationtype", "objectivevalue_name": "objectivevaluename",
        "metrics_names": "metricsnames", "parametertype_configs": "parameterconfigs",
        "request_number": "requestcount", "suggestion_algorithm": "suggestionAlgorithm",
    }  # fmt: skip
    document = {names.get(key, key): value for key, value in HP.items()}
    assert read_hp_document(document) == read_hp_document(HP)


def test_the_block_of_the_slide() -> None:
    document = {key: HP[key] for key in ("hp_name", "module_name", "trainer_uri")}
    block = {
        "goal": "MINIMIZE",
        "output_path": "fds://cloudml/out",
        "params": [{"b": 1, "a": 2}, {"a": 3}],
    }
    study = read_hp_document({**document, "hyperparameters": block}).study
    assert study.objective == f"{METRIC}:min"
    assert study.trials == [{"a": 2, "b": 1}, {"a": 3}]
    assert (study.algorithm, study.job["output_path"]) == ("grid", "fds://cloudml/out")


def test_what_is_not_known_is_named() -> None:
    found = read_hp_document({**HP, "nas_config": 1})
    assert found.notes == ["the field 'nas_config' is not known here and was ignored"]


_CONFIG = "parametertype_configs"
_LR = HP[_CONFIG][0]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"hp_name": None}, "hp_name"),
        ({"module_name": ""}, "module_name"),
        ({"save_mode": True}, "save_mode"),
        ({"optimization_type": "best"}, "optimization_type"),
        ({"objectivevalue_name": 7}, "objectivevalue_name"),
        ({"metrics_names": "loss"}, "metrics_names"),
        ({"request_number": "many"}, "request_number"),
        ({"request_number": 1.5}, "request_number"),
        ({"requestcount": 3}, "requestcount"),
        ({_CONFIG: {}}, _CONFIG),
        ({_CONFIG: None}, _CONFIG),
        ({_CONFIG: [7]}, f"{_CONFIG}[0]"),
        ({_CONFIG: [{**_LR, "name": 7}]}, f"{_CONFIG}[0].name"),
        ({_CONFIG: [_LR, _LR]}, f"{_CONFIG}[1].name"),
        ({_CONFIG: [{**_LR, "parametertype": "unknown"}]}, f"{_CONFIG}[0].parametertype"),
        ({_CONFIG: [{**_LR, "feasible": None}]}, f"{_CONFIG}[0].feasible"),
        ({_CONFIG: [{**_LR, "feasible": {"min": "x", "max": 1}}]}, f"{_CONFIG}[0].feasible.min"),
        ({_CONFIG: [{**_LR, "feasible": {"low": 1}}]}, f"{_CONFIG}[0].feasible.low"),
        ({_CONFIG: [{**_LR, "bounds": []}]}, f"{_CONFIG}[0].bounds"),
        ({"hyperparameters": {"goal": "BEST"}}, "hyperparameters.goal"),
    ],
)
def test_what_is_wrong_is_refused_by_its_field(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read_hp_document({**HP, **wrong})
    assert refused.value.field == field


def test_an_experiment_of_katib() -> None:
    document = {**EXPERIMENT, "hp_name": "digits", "trainer_uri": "fds://c/digits.tar.gz"}
    found = read_hp_document({**document, "module_name": "mnist"})
    study = found.study
    assert study.name == "digits"
    assert study.space == {
        "lr": {"min": 0.0001, "max": 0.05, "scale": "log"},
        "depth": {"type": "int", "min": 2, "max": 6, "step": 2},
    }
    assert study.job == {
        "module_name": "mnist", "trainer_uri": "fds://c/digits.tar.gz",
        "job_args": ["--epochs=1"], "environment": {"MODE": "fast"}, "cpu_limit": "0.5",
        "memory_limit": "1G", "metric_patterns": study.job["metric_patterns"],
    }  # fmt: skip
    assert (study.objective, study.target) == ("Validation-loss:min", 0.001)
    assert (study.algorithm, study.seed) == ("bayesianoptimization", 10)
    assert (study.stopper, study.stopper_options) == (
        "medianstop",
        {"min_trials": 3, "warmup_steps": 5},
    )
    assert (study.parallel, study.max_trials, study.max_failed) == (3, 12, 2)
    assert len(found.notes) == 1
    assert "image" in found.notes[0]


_CONTAINER = "spec.trialTemplate.trialSpec.spec.template.spec.containers.0"
_PLACE = "spec.trialTemplate.trialSpec.spec.template.spec.containers[0]"


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("kind", "Deployment", "kind"),
        ("apiVersion", "kubeflow.org/v1alpha1", "kind"),
        ("spec", 7, "spec"),
        ("spec.nasConfig", {}, "spec.nasConfig"),
        ("spec.objective.type", "best", "spec.objective.type"),
        ("spec.objective.objectiveMetricName", "", "spec.objective.objectiveMetricName"),
        ("spec.objective.goal", "low", "spec.objective.goal"),
        ("spec.algorithm", [], "spec.algorithm"),
        ("spec.algorithm.algorithmSettings", 7, "spec.algorithm.algorithmSettings"),
        ("spec.parameters", {}, "spec.parameters"),
        ("spec.parameters.0.parameterType", "text", "spec.parameters[0].parameterType"),
        (
            "spec.parameters.0.feasibleSpace.distribution",
            "normal",
            "spec.parameters[0].feasibleSpace.distribution",
        ),
        ("spec.maxTrialCount", "many", "spec.maxTrialCount"),
        (
            "spec.metricsCollectorSpec",
            {"collector": {"kind": "Custom"}},
            "spec.metricsCollectorSpec.collector.kind",
        ),
        ("spec.trialTemplate.trialParameters", [], "spec.trialTemplate.trialParameters"),
        ("spec.trialTemplate.trialSpec.kind", "PyTorchJob", "spec.trialTemplate.trialSpec.kind"),
        (f"{_CONTAINER}.command", ["echo", "${trialParameters.layers}"], f"{_PLACE}.args"),
        (f"{_CONTAINER}.command", ["python", "-m"], "spec.parameters"),
        (
            f"{_CONTAINER}.command",
            ["--a=${trialParameters.layers}", "--a=${trialParameters.learningRate}"],
            f"{_PLACE}.args",
        ),
        (
            "spec.trialTemplate.trialParameters",
            [{"name": "layers", "reference": "num-layers"}],
            f"{_PLACE}.args",
        ),
        (
            "spec.trialTemplate.trialParameters.0.reference",
            "${trialSpec.Name}",
            "spec.trialTemplate.trialParameters.learningRate.reference",
        ),
        (
            "spec.trialTemplate.trialParameters.1.reference",
            "num_layers",
            "spec.trialTemplate.trialParameters.layers.reference",
        ),
        (f"{_CONTAINER}.command", "python", f"{_PLACE}.command"),
        (f"{_CONTAINER}.env", [{"name": "A", "valueFrom": {}}], f"{_PLACE}.env[0]"),
        (f"{_CONTAINER}.resources.limits.memory", "lots", f"{_PLACE}.resources.limits.memory"),
        (f"{_CONTAINER}.resources.limits.tpu", 1, f"{_PLACE}.resources.limits.tpu"),
    ],
)
def test_what_an_experiment_has_no_counterpart_for_is_named(
    path: str, value: Any, field: str
) -> None:
    document = changed(EXPERIMENT, path, value)
    outer = {"hp_name": "digits", "trainer_uri": "fds://c/d.tar.gz", "module_name": "mnist"}
    with pytest.raises(InvalidRequest) as refused:
        read_hp_document({**document, **outer})
    assert refused.value.field == field


def test_a_parameter_that_no_argument_has_is_named() -> None:
    document = changed(
        EXPERIMENT, f"{_CONTAINER}.command", ["python", "--lr=${trialParameters.learningRate}"]
    )
    outer = {"hp_name": "digits", "trainer_uri": "fds://c/d.tar.gz", "module_name": "mnist"}
    with pytest.raises(InvalidRequest) as refused:
        read_hp_document({**document, **outer})
    assert str(refused.value) == (
        "spec.parameters is 'num-layers'; allowed is parameters that an argument of the container "
        "has: --flag=${trialParameters.NAME}"
    )
    shorter = changed(
        document,
        "spec.trialTemplate.trialParameters",
        [{"name": "learningRate", "reference": "lr"}],
    )
    with pytest.raises(InvalidRequest) as refused:
        read_hp_document({**shorter, **outer})
    assert refused.value.field == "spec.trialTemplate.trialParameters"


@pytest.mark.parametrize(
    "command", [["python"] * 10_001, ["sh", "-c", "python -m a " + "a" * 65_536]]
)
def test_a_command_that_takes_long_to_read_is_refused(command: list[str]) -> None:
    """A body of a megabyte kept everybody waiting for some seconds."""
    document = copy.deepcopy(EXPERIMENT)
    pod = document["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]
    pod["containers"][0]["command"] = command
    code = {"hp_name": "a", "module_name": "m", "trainer_uri": "fds://c/a.tar.gz"}
    with pytest.raises(InvalidRequest) as refused:
        read_hp_document({**document, **code})
    assert str(refused.value.field).endswith("containers[0].command")
    assert len(str(refused.value)) < 500


def test_a_population_of_katib_has_its_options() -> None:
    document = copy.deepcopy(EXPERIMENT)
    settings = {"n_population": "40", "truncation_threshold": "0.4", "suggestion_trial_dir": "/opt"}
    document["spec"]["algorithm"] = {
        "algorithmName": "pbt",
        "algorithmSettings": [{"name": key, "value": value} for key, value in settings.items()],
    }
    outer = {"hp_name": "digits", "trainer_uri": "fds://c/digits.tar.gz", "module_name": "mnist"}
    found = read_hp_document({**document, **outer})
    assert found.study.algorithm == "pbt"
    assert found.study.algorithm_options == {"population": 40, "quantile": 0.4}
    assert any("suggestion_trial_dir is not used" in note for note in found.notes)
