"""Jobs written down in files: JSON, TOML, and YAML where PyYAML is installed."""

from __future__ import annotations

import importlib
import json
import tomllib
from pathlib import Path
from typing import Any

from cloud_ml.errors import InvalidRequest


def read_job_file(path: Path) -> dict[str, Any]:
    """The fields of a job, by the names that they have on the wire.

    Raises:
        InvalidRequest: The file cannot be read, is not of the form that its name tells, or holds no
            table of fields.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _bad(path, f"cannot be read: {error}") from error
    try:
        document = _parse(path, text)
    except ValueError as error:
        raise _bad(path, f"is malformed: {error}") from error
    if not isinstance(document, dict):
        raise _bad(path, "holds no table of fields such as job_name")
    return document


def _parse(path: Path, text: str) -> Any:
    if path.suffix == ".toml":
        return tomllib.loads(text)
    if path.suffix in (".yaml", ".yml"):
        return _parse_yaml(path, text)
    return json.loads(text)


def _parse_yaml(path: Path, text: str) -> Any:
    try:
        yaml = importlib.import_module("yaml")
    except ModuleNotFoundError:
        raise InvalidRequest(
            f"{path} is YAML, which needs the package PyYAML",
            field="filename",
            value=str(path),
            allowed="JSON, TOML, or YAML with PyYAML installed",
            hint="Run `pip install pyyaml`, or write the job as JSON or TOML.",
        ) from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error).replace("\n", " ")) from error


def _bad(path: Path, what: str) -> InvalidRequest:
    return InvalidRequest(
        f"the job file {path} {what}",
        field="filename",
        value=str(path),
        allowed="a JSON, TOML or YAML file of a job's fields",
    )
