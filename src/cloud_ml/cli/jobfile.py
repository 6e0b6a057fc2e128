"""Jobs written down in files: JSON, TOML or YAML, by the ending of the name."""

from __future__ import annotations

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
        from cloud_ml.cli.yamls import load

        return load(text)
    return json.loads(text)


def _bad(path: Path, what: str) -> InvalidRequest:
    return InvalidRequest(
        f"the job file {path} {what}",
        field="filename",
        value=str(path),
        allowed="a JSON, TOML or YAML file of a job's fields",
    )
