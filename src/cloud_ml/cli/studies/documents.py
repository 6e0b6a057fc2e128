"""What ``hp submit`` makes a study of: a file of ours or of another tool, and options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from cloud_ml.cli.display.output import note
from cloud_ml.cli.resource_group import json_or_text, read_document
from cloud_ml.errors import InvalidRequest
from cloud_ml.models.common import refuse
from cloud_ml.models.studies.study import NewStudy

_JOB = (
    "module_name",
    "trainer_uri",
    "framework",
    "cpu_limit",
    "memory_limit",
    "job_args",
    "metric_patterns",
)
"""Options that are fields of the job."""
_DISTRIBUTION = re.compile(r"[A-Za-z_][\w.]*\(.*\)$")
"""As Ray Tune, Hyperopt and Optuna write it: ``tune.loguniform(0.001, 1)``."""
_SPACE = "NAME=VALUE,VALUE or NAME=MIN:MAX[:int][:log|:reverse-log]"
_JSON = """-s 'lr={"min": 0.1, "max": 1}'"""
_END = r"\s*([-+]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?)\s*"
_DOTS = re.compile(rf"{_END}\.{{2,3}}{_END}")
"""A range as Ruby and Rust write it: ``0.001..1``."""
_SCALES = ("log", "reverse-log")


def study_of(
    file: str | None, name: str | None, options: Mapping[str, Any], *, local_name: str = ""
) -> NewStudy:
    """The study of a file, if there is one; options take the place of its fields.

    With a ``local_name``, its trials run on this machine: it has no job, one trial runs at a time
    unless more are asked for, and this is its name if it has no other.

    Raises:
        InvalidRequest: A field is missing, unknown or wrong.
    """
    from cloud_ml.models import codec

    given = _given_options(options)
    job = {key: given.pop(key) for key in _JOB if key in given}
    space = _space(given.pop("space", ()))
    population = given.pop("population", None)
    document = {} if file is None else _document(file, job)
    if population is not None:
        further = _fields(document, "algorithm_options")
        document["algorithm_options"] = {**further, "population": population}
    document["job"] = {**_fields(document, "job"), **job}
    document["space"] = {**_fields(document, "space"), **space}
    if name is not None:
        document["name"] = name
    if local_name:
        document = {"name": local_name, "parallel": 1, **document, "job": {}, "local": True}
    else:
        if file is None:
            _check_complete(document)
        document["job"] = _with_module(document["job"])
    study = {**document, **given}
    if isinstance(study.get("objective"), Mapping):
        raise refuse("objective", study["objective"], "METRIC:min or METRIC:max, such as loss:min")
    return codec.decode(NewStudy, study)


def _given_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that the user has set, as a document has them."""
    given = {key: value for key, value in options.items() if value not in (None, ())}
    if objectives := given.get("objective"):
        given["objective"] = objectives[0] if len(objectives) == 1 else list(objectives)
    for field in ("constraints", "warm_start", "metric_patterns"):
        if field in given:
            given[field] = list(given[field])
    return given


def _check_complete(document: Mapping[str, Any]) -> None:
    """Refuse options that make no study without a file."""
    if "name" not in document:
        raise click.UsageError("the study has no name: cloudml hp submit NAME …")
    if "trainer_uri" not in document["job"]:
        raise click.UsageError(_without_code(document))


def _without_code(document: Mapping[str, Any]) -> str:
    """What to type in place of words that name no code, or name it as a module."""
    name, module = document["name"], document["job"].get("module_name")
    if path := next((word for word in (module, name) if word and Path(word).exists()), None):
        words = [*([] if path == name else [name]), f"./{path}"]
        return (
            "no code is given. Usual is: cloudml hp submit NAME MODULE URI, or for the code in "
            f"{path}: cloudml hp submit {shlex.join(words)}"
        )
    return (
        "no code is given; name the script or folder that a trial runs, such as "
        "cloudml hp submit NAME train.py, or a study file with -f"
    )


def _with_module(job: Mapping[str, Any]) -> Mapping[str, Any]:
    """The job with the module that local code suggests, where none is given.

    Raises:
        InvalidRequest: The code has no module to run, or several.
    """
    uri = job.get("trainer_uri")
    if not isinstance(uri, str) or "://" in uri or not job.get("module_name", True):
        return job
    from cloud_ml.cli.jobs.submit_arguments import with_defaults

    return {key: value for key, value in with_defaults({"job_name": "", **job}).items()
            if key in job or key == "module_name"}  # fmt: skip


def _fields(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = document.get(name) or {}
    if not isinstance(found, Mapping):
        raise InvalidRequest(f"{name} is {found!r}; allowed is an object of fields", field=name)
    return found


def _document(file: str, job: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a study in a file of ours, of the original client, or of Katib."""
    from cloud_ml.models.studies.hp_documents import is_hp_document, read_hp_document
    from cloud_ml.models.studies.katib import is_experiment, read_experiment

    document = read_document(file)
    if is_hp_document(document):
        found = read_hp_document({**document, **job})
    elif is_experiment(document):
        found = read_experiment(document, job)
    else:
        if "parameters" in document and {"method", "program"} & document.keys():
            raise InvalidRequest(
                "this file is a sweep of Weights & Biases",
                field="parameters",
                allowed="a study: job, space, objective and algorithm",
                hint="Write program as job.trainer_uri, parameters as space, "
                "metric as objective: METRIC:min, and method as algorithm.",
            )
        return document
    for text in found.notes:
        note(f"Note: {text}")
    return {key: value for key, value in vars(found.study).items() if value is not None}


def _space(texts: Sequence[str]) -> dict[str, Any]:
    """The parameters of ``--space`` options."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not name or not values:
            raise click.UsageError(f"--space {text!r} is not {_SPACE}")
        if name in found:
            raise click.UsageError(f"--space has the parameter {name!r} twice")
        found[name] = _parameter(name, values)
    return found


def changes_of(texts: Sequence[str]) -> dict[str, Any]:
    """The parameters that ``hp extend --space`` changes; ``null`` takes one away."""
    taken = [text.partition("=")[0] for text in texts if text.endswith("=null")]
    changed = _space([text for text in texts if not text.endswith("=null")])
    if twice := next((name for name in taken if name in changed or taken.count(name) > 1), None):
        raise click.UsageError(f"--space has the parameter {twice!r} twice")
    return {**changed, **dict.fromkeys(taken)}


def _parameter(name: str, text: str) -> Any:
    whole = json_or_text(text)
    if isinstance(whole, (dict, list)):
        return whole
    if _DISTRIBUTION.match(text):
        raise click.UsageError(f"--space …={text!r} is the call of a distribution; write {_SPACE}")
    if found := _DOTS.fullmatch(text):
        raise click.UsageError(
            f"--space {name}={text!r} is not a range; write {name}={found[1]}:{found[2]}"
        )
    low, *rest = (part.strip() for part in text.split(":"))
    if text.lstrip().startswith(("{", "[")):
        raise click.UsageError(f"--space {name}={text!r} is not JSON; write {_SPACE}, or {_JSON}")
    if not rest or "," in text:
        return [json_or_text(value.strip()) for value in text.split(",")]
    words = rest[1:]
    known = ("int", "double", *_SCALES)
    if unknown := next((word for word in words if word not in known), None):
        if isinstance(json_or_text(unknown), (int, float)):
            step = f'{{"min": {low}, "max": {rest[0]}, "step": {unknown}}}'
            raise click.UsageError(
                f"--space {name}={text!r} has a third number; write a step as -s '{name}={step}', "
                f"or in a file as {name}: {step}"
            )
        raise click.UsageError(f"--space …={text!r} has {unknown!r}; write {_SPACE}")
    document = {"min": json_or_text(low), "max": json_or_text(rest[0])}
    if not words and all(type(end) is int for end in document.values()) and document["max"] > 1:
        note(f"Note: {low}:{rest[0]} are real numbers; write {low}:{rest[0]}:int for whole ones")
    if "int" in words:
        document["type"] = "int"
    scale = next((word for word in words if word in _SCALES), None)
    return document | ({"scale": scale} if scale else {})
