"""Studies as Katib writes them: an ``Experiment`` of ``kubeflow.org/v1beta1``."""

from __future__ import annotations

import re
import shlex
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from cloud_ml.models.common import format_memory, format_value, refuse
from cloud_ml.models.studies.foreign_studies import (
    KATIB,
    ForeignStudy,
    count_of,
    goal_of,
    number_of,
    object_of,
    space_of,
    text_of,
)
from cloud_ml.models.studies.study import NewStudy

_VERSIONS = ("kubeflow.org/v1beta1",)
_SPEC = (
    "objective", "algorithm", "parameters", "earlyStopping", "parallelTrialCount",
    "maxTrialCount", "maxFailedTrialCount", "trialTemplate", "metricsCollectorSpec", "resumePolicy",
)  # fmt: skip
_OBJECTIVE = (
    "type", "goal", "objectiveMetricName", "additionalMetricNames", "metricStrategies",
)  # fmt: skip
_COLLECTORS = ("StdOut", "File", "TensorFlowEvent", "Push", "None")
_OPTIONS = {"min_trials_required": "min_trials", "start_step": "warmup_steps"}
_REFERENCE = re.compile(r"\$\{trialParameters\.([^}]{1,200})\}")
_FLAG = re.compile(r"(--?[A-Za-z_][A-Za-z0-9_.-]{0,99})=\$\{trialParameters\.([^}]{1,200})\}")
_QUANTITY = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)([kKMGT]i?|m)?")
_MOST_WORDS, _LONGEST_COMMAND = 10_000, 65_536
"""Of a command: documents are read while others wait."""
_BYTES = {"k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def is_experiment(document: Mapping[str, Any]) -> bool:
    """Whether this is a manifest of Kubernetes."""
    return "apiVersion" in document and "kind" in document


def read_experiment(document: Mapping[str, Any], job: Mapping[str, Any]) -> ForeignStudy:
    """The study that an Experiment asks for.

    Args:
        document: The Experiment.
        job: Fields of the train job that come from elsewhere. ``trainer_uri`` has to be there: an
            Experiment names an image, which this platform does not run.

    Raises:
        InvalidRequest: Names the field that is wrong or that this platform has nothing for.
    """
    if document.get("kind") != "Experiment" or document.get("apiVersion") not in _VERSIONS:
        raise refuse("kind", document.get("kind"), f"Experiment of {_VERSIONS[0]}")
    spec = object_of("spec", document.get("spec"))
    for key in spec:
        if key not in _SPEC:
            raise refuse(f"spec.{key}", spec[key], ", ".join(_SPEC))
    notes: list[str] = []
    fields = _objective(object_of("spec.objective", spec.get("objective")), notes)
    space = space_of("spec.parameters", spec.get("parameters"), KATIB)
    made = _job(spec, dict(job), notes)
    flags, references = made.pop("flags"), made.pop("references")
    _check_references(references, space, flags)
    fields["space"] = {flags[name]: space[name] for name in space}
    fields |= _algorithm(spec, notes) | _early_stopping(spec)
    for key, ours in (
        ("parallelTrialCount", "parallel"),
        ("maxTrialCount", "max_trials"),
        ("maxFailedTrialCount", "max_failed"),
    ):
        if spec.get(key) is not None:
            fields[ours] = count_of(f"spec.{key}", spec[key])
    _collector(spec, fields["objective"].rpartition(":")[0], made)
    metadata = object_of("metadata", document.get("metadata", {}))
    name = metadata.get("name") or metadata.get("generateName", "").rstrip("-")
    return ForeignStudy(NewStudy(name=text_of("metadata.name", name), job=made, **fields), notes)


def _check_references(
    references: Mapping[str, str], space: Mapping[str, Any], flags: Mapping[str, str]
) -> None:
    """Each name of the template refers to a parameter, and each parameter is an argument.

    Raises:
        InvalidRequest: One does not. Katib's references to the trial itself, such as
            ``${trialSpec.Name}``, are refused, too: else their argument would be left out.
    """
    where = "spec.trialTemplate.trialParameters"
    for name, reference in references.items():
        if reference not in space:
            allowed = f"one of spec.parameters: {', '.join(space)}"
            raise refuse(f"{where}.{name[:80]}.reference", reference, allowed)
    for name in space:
        if name not in references.values():
            raise refuse(where, sorted(references), f"one that refers to the parameter {name}")
        if name not in flags:
            allowed = (
                "parameters that an argument of the container has: --flag=${trialParameters.NAME}"
            )
            raise refuse("spec.parameters", name, allowed)


def _objective(objective: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    for key in objective:
        if key not in _OBJECTIVE:
            raise refuse(f"spec.objective.{key}", objective[key], ", ".join(_OBJECTIVE))
    goal = goal_of("spec.objective.type", objective.get("type"))
    metric = text_of("spec.objective.objectiveMetricName", objective.get("objectiveMetricName"))
    latest = [{"name": metric, "value": "latest"}]
    if objective.get("metricStrategies", latest) != latest:
        notes.append("spec.objective.metricStrategies: the last value of a trial counts")
    fields: dict[str, Any] = {"objective": f"{metric}:{goal}"}
    if objective.get("goal") is not None:
        fields["target"] = float(number_of("spec.objective.goal", objective["goal"]))
    return fields


_OPTIONS_OF_PBT = {
    "n_population": "population",
    "truncation_threshold": "quantile",
    "resample_probability": "resample_probability",
}


def _settings(path: str, algorithm: Mapping[str, Any]) -> dict[str, str]:
    """The list of names and values of an algorithm."""
    found: dict[str, str] = {}
    listed = algorithm.get("algorithmSettings") or []
    if not isinstance(listed, list):
        raise refuse(f"{path}.algorithmSettings", listed, "a list of names and values")
    for number, one in enumerate(listed):
        where = f"{path}.algorithmSettings[{number}]"
        setting = object_of(where, one)
        found[text_of(f"{where}.name", setting.get("name"))] = setting.get("value", "")
    return found


def _algorithm(spec: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    algorithm = object_of("spec.algorithm", spec.get("algorithm", {"algorithmName": "random"}))
    fields: dict[str, Any] = {
        "algorithm": text_of("spec.algorithm.algorithmName", algorithm.get("algorithmName"))
    }
    options: dict[str, Any] = {}
    for name, value in _settings("spec.algorithm", algorithm).items():
        field = f"spec.algorithm.algorithmSettings.{name[:80]}"
        if name == "random_state":
            fields["seed"] = count_of(field, value)
        elif fields["algorithm"] == "pbt" and name in _OPTIONS_OF_PBT:
            number = count_of if name == "n_population" else number_of
            options[_OPTIONS_OF_PBT[name]] = number(field, value)
        else:
            notes.append(f"spec.algorithm.algorithmSettings: {name[:80]} is not used")
    return fields | ({"algorithm_options": options} if options else {})


def _early_stopping(spec: Mapping[str, Any]) -> dict[str, Any]:
    if spec.get("earlyStopping") is None:
        return {}
    stopping = object_of("spec.earlyStopping", spec["earlyStopping"])
    options = {
        _OPTIONS.get(name, name): count_of(f"spec.earlyStopping.algorithmSettings.{name}", value)
        for name, value in _settings("spec.earlyStopping", stopping).items()
    }
    name = text_of("spec.earlyStopping.algorithmName", stopping.get("algorithmName"))
    return {"stopper": name, "stopper_options": options}


def _collector(spec: Mapping[str, Any], metric: str, job: dict[str, Any]) -> None:
    """How the metric is found: Katib reads ``name=value`` in the log unless it is told otherwise."""
    collector_spec = object_of("spec.metricsCollectorSpec", spec.get("metricsCollectorSpec") or {})
    collector = object_of(
        "spec.metricsCollectorSpec.collector", collector_spec.get("collector") or {}
    )
    kind = collector.get("kind", "StdOut")
    if kind not in _COLLECTORS:
        raise refuse("spec.metricsCollectorSpec.collector.kind", kind, ", ".join(_COLLECTORS))
    source = object_of("spec.metricsCollectorSpec.source", collector_spec.get("source") or {})
    if source.get("filter"):
        where = "spec.metricsCollectorSpec.source.filter"
        raise refuse(where, source["filter"], "nothing; write metric_patterns of the job instead")
    if kind in ("StdOut", "File") and "metric_patterns" not in job:
        value = r"(?P<value>[-+0-9.a-zA-Z]+)"
        job["metric_patterns"] = [rf"(?:^|[^\w|-])(?P<name>{re.escape(metric)})\s*=\s*{value}"]


def _job(spec: Mapping[str, Any], job: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """The train job of the trials; ``flags`` has the argument of each parameter, and ``references``
    the parameter of each name of the template.
    """
    path = "spec.trialTemplate"
    template = object_of(path, spec.get("trialTemplate"))
    references = _references(f"{path}.trialParameters", template.get("trialParameters"))
    trial = object_of(f"{path}.trialSpec", template.get("trialSpec"))
    path += ".trialSpec"
    if trial.get("kind") != "Job":
        raise refuse(f"{path}.kind", trial.get("kind"), "Job, with one container")
    pod: Any = trial
    for key in ("spec", "template", "spec"):
        path += f".{key}"
        pod = object_of(path, pod.get(key))
    container, path = _container(f"{path}.containers", pod, template)
    words = [*_words(path, container, "command"), *_words(path, container, "args")]
    module, rest = _module_of(words)
    fixed, flags = _split(path, rest, references)
    if container.get("image"):
        image = format_value(container["image"])
        notes.append(f"the image {image} is not run: trainer_uri and framework take its place")
    made = {"module_name": module} | _limits(path, container) | job
    if made["module_name"] is None:
        raise refuse(f"{path}.command", words, "python -m MODULE …, or a module_name beside it")
    if not made.get("trainer_uri"):
        raise refuse(
            "trainer_uri", None, "the code, such as -u FOLDER: an Experiment names an image instead"
        )
    if fixed and "job_args" not in job:
        made["job_args"] = fixed
    if environment := _environment(f"{path}.env", container.get("env") or []):
        made["environment"] = {**environment, **(job.get("environment") or {})}
    return {**made, "flags": flags, "references": references}


def _references(path: str, listed: Any) -> dict[str, str]:
    """The parameters by the names that the template has for them."""
    if not isinstance(listed, list) or not listed:
        raise refuse(path, listed, "a list of name and reference")
    found: dict[str, str] = {}
    for number, one in enumerate(listed):
        where = f"{path}[{number}]"
        parameter = object_of(where, one)
        reference = text_of(f"{where}.reference", parameter.get("reference"))
        found[text_of(f"{where}.name", parameter.get("name"))] = reference.lstrip("-")
    return found


def _container(
    path: str, pod: Mapping[str, Any], template: Mapping[str, Any]
) -> tuple[Mapping[str, Any], str]:
    containers = pod.get("containers")
    if not isinstance(containers, list) or not containers:
        raise refuse(path, containers, "a list of containers")
    primary = template.get("primaryContainerName")
    for number, one in enumerate(containers):
        found = object_of(f"{path}[{number}]", one)
        if len(containers) == 1 or found.get("name") == primary:
            return found, f"{path}[{number}]"
    where = "spec.trialTemplate.primaryContainerName"
    raise refuse(where, primary, "the name of one of the containers")


def _words(path: str, container: Mapping[str, Any], key: str) -> list[str]:
    words = container.get(key) or []
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise refuse(f"{path}.{key}", words, "a list of words")
    if len(words) > _MOST_WORDS:
        raise refuse(f"{path}.{key}", f"{len(words)} words", f"at most {_MOST_WORDS} words")
    if len(words) == 3 and words[0] in ("sh", "bash", "/bin/sh", "/bin/bash") and words[1] == "-c":
        if len(words[2]) > _LONGEST_COMMAND:
            allowed = f"a command of at most {_LONGEST_COMMAND} characters"
            raise refuse(f"{path}.{key}", f"{len(words[2])} characters", allowed)
        try:
            return shlex.split(words[2])
        except ValueError as error:
            raise refuse(f"{path}.{key}", words, "a command whose quotes are closed") from error
    return words


def _module_of(words: Sequence[str]) -> tuple[str | None, Sequence[str]]:
    """The module that a command of Python runs, and its arguments."""
    if not words or not re.fullmatch(r"(.*/)?python[0-9.]*", words[0]):
        return None, words
    rest = [word for word in words[1:] if word != "-u"]
    if rest[:1] == ["-m"] and len(rest) > 1:
        return rest[1], rest[2:]
    if rest and rest[0].endswith(".py"):
        return rest[0].rpartition("/")[2].removesuffix(".py"), rest[1:]
    return None, rest


def _split(
    path: str, words: Sequence[str], references: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """The fixed arguments of a command, and the flag of each parameter."""
    fixed: list[str] = []
    flags: dict[str, str] = {}
    waiting = deque(words)
    while waiting:
        word = waiting.popleft()
        pair = f"{word}={waiting[0]}" if waiting and word.startswith("-") else ""
        if _FLAG.fullmatch(word) is None and _FLAG.fullmatch(pair):
            word = f"{word}={waiting.popleft()}"
        if match := _FLAG.fullmatch(word):
            if match[2] not in references:
                raise refuse(f"{path}.args", word, f"one of {', '.join(sorted(references))}")
            flag = match[1].lstrip("-")
            if flag in flags.values():
                raise refuse(f"{path}.args", word, f"one parameter for --{flag}")
            flags[references[match[2]]] = flag
        elif _REFERENCE.search(word):
            raise refuse(f"{path}.args", word, "--flag=${trialParameters.name}")
        else:
            fixed.append(word)
    return fixed, flags


def _environment(path: str, listed: Any) -> dict[str, str]:
    if not isinstance(listed, list):
        raise refuse(path, listed, "a list of name and value")
    found: dict[str, str] = {}
    for number, one in enumerate(listed):
        variable = object_of(f"{path}[{number}]", one)
        value = variable.get("value", "")
        if "valueFrom" in variable or not isinstance(value, str) or _REFERENCE.search(value):
            raise refuse(f"{path}[{number}]", dict(variable), "a name and a fixed value")
        found[text_of(f"{path}[{number}].name", variable.get("name"))] = value
    return found


def _limits(path: str, container: Mapping[str, Any]) -> dict[str, Any]:
    resources = object_of(f"{path}.resources", container.get("resources") or {})
    limits = object_of(f"{path}.resources.limits", resources.get("limits") or {})
    found: dict[str, Any] = {}
    for key, value in limits.items():
        where = f"{path}.resources.limits.{key}"
        if key == "cpu":
            found["cpu_limit"] = f"{_quantity(where, value):.2f}".rstrip("0").rstrip(".")
        elif key == "memory":
            found["memory_limit"] = format_memory(int(_quantity(where, value)))
        elif key == "nvidia.com/gpu":
            found["gpu_limit"] = count_of(where, value)
        else:
            raise refuse(where, value, "cpu, memory and nvidia.com/gpu")
    return found


def _quantity(where: str, value: Any) -> float:
    match = _QUANTITY.fullmatch(str(value))
    if match is None:
        raise refuse(where, value, "a quantity of Kubernetes, such as 500m or 2Gi")
    unit = match[2] or ""
    if unit == "m":
        return float(match[1]) / 1000
    return float(match[1]) * (_BINARY | _BYTES).get(unit, 1)
