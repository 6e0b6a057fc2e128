"""Jobs written down in files: JSON, TOML or YAML, by the ending of the name."""

from __future__ import annotations

import dataclasses
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from cloud_ml.cli.options import json_documents
from cloud_ml.errors import InvalidRequest
from cloud_ml.models.jobs.train_job import FIELD_ALIASES, TrainJob
from cloud_ml.text_encoding import decode_text

_USUAL = (
    "job_name, module_name, trainer_uri, job_args, framework, requirements, environment, "
    "cpu_limit, memory_limit, worker_count, recipe, array, elastic, max_retries, restart, "
    "wall_time_limit, outputs"
)
_ALL_FIELDS = "the others are in docs/reference/jobs.md"
_SKYPILOT = frozenset({"resources", "run", "setup", "num_nodes", "file_mounts", "envs", "workdir"})


def read_job_file(path: Path) -> dict[str, Any]:
    """The fields of a job, by the names that they have on the wire.

    Raises:
        InvalidRequest: The file cannot be read, is not of the form that its name tells, or holds no
            table of fields.
    """
    try:
        text = decode_text(path.read_bytes())
    except (OSError, UnicodeDecodeError) as error:
        raise _bad(path, f"cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        document = _parse(path, text)
    except (ValueError, RecursionError) as error:
        raise _bad(path, f"is malformed: {error}") from error
    if not isinstance(document, dict):
        raise _bad(path, "holds no table of fields such as job_name")
    _check_is_job(path, document)
    _check_names(path, document)
    return document


def _check_is_job(path: Path, document: dict[str, Any]) -> None:
    """Refuse a file that was written for another tool."""
    what = ""
    if "apiVersion" in document and "kind" in document:
        what = f"is a manifest of Kubernetes ({str(document['kind'])[:63]})"
    elif "run" in document and len(_SKYPILOT.intersection(document)) > 1:
        what = "is a task of SkyPilot"
    if what:
        raise InvalidRequest(
            f"the job file {path} {what}; here, a job is its fields, without nesting",
            field="filename",
            value=str(path),
            allowed=f"{_USUAL}; {_ALL_FIELDS}",
            hint="Write one from options: cloudml jobs submit train.py -w 2 --dry-run > job.json",
        )


def _check_names(path: Path, document: dict[str, Any]) -> None:
    known = [field.name for field in dataclasses.fields(TrainJob)]
    for name in document:
        if name not in known:
            alias = FIELD_ALIASES.get(str(name))
            near = [alias] if alias else get_close_matches(str(name), known, n=3)
            raise InvalidRequest(
                f"{name} in the job file {path} is not a known field"
                + (f"; did you mean {' or '.join(near)}?" if near else ""),
                field=str(name),
                allowed=f"one of {', '.join(near)}" if near else f"{_USUAL}; {_ALL_FIELDS}",
            )


def _parse(path: Path, text: str) -> Any:
    if path.suffix == ".toml":
        return tomllib.loads(text)
    if path.suffix in (".yaml", ".yml"):
        from cloud_ml.cli.display.yamls import load

        return load(text)
    return json_documents.load(text)


def _bad(path: Path, what: str) -> InvalidRequest:
    return InvalidRequest(
        f"the job file {path} {what}",
        field="filename",
        value=str(path),
        allowed="a JSON, TOML or YAML file of a job's fields",
    )
