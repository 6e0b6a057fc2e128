"""What names, sources and aliases in the registry of models may be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from cloud_ml.domain.tracking.registry import Stage
from cloud_ml.domain.tracking.runs import LONGEST_TAG
from cloud_ml.errors import NotFound
from cloud_ml.models import common
from cloud_ml.usecases.tracking import checks

LONGEST_NAME, LONGEST_DESCRIPTION, LONGEST_SOURCE = 256, 5000, 2000
_SCHEMES = (
    "mlflow-artifacts", "models", "runs", "fds", "http", "https", "s3", "gs", "wasbs", "abfss",
    "hdfs",
)  # fmt: skip
_SOURCE = re.compile(rf"(?:{'|'.join(_SCHEMES)}):/+[^/\s].*", re.DOTALL)
_ALIAS = re.compile(r"[\w\-]{1,255}")
_VERSION_ALIAS = re.compile(r"v\d+", re.IGNORECASE)


def check_model_name(field: str, name: object) -> str:
    """The name of a registered model.

    Raises:
        InvalidRequest: It is none.
    """
    checked = checks.check_value(field, name, LONGEST_NAME)
    if not checked.strip() or any(sign in checked for sign in "/:"):
        allowed = f"1 to {LONGEST_NAME} characters without '/' and ':'"
        raise common.refuse(field, checked[:80], allowed)
    return checked


def check_description(text: object) -> str:
    """A description.

    Raises:
        InvalidRequest: It is too long.
    """
    return checks.check_value("description", text, LONGEST_DESCRIPTION)


def check_source(source: object) -> str:
    """Where the files of a version are. A path of this machine, or of a reader's, is none.

    Raises:
        InvalidRequest: It is no URI, or leaves its folder.
    """
    checked = checks.check_value("source", source, LONGEST_SOURCE)
    if not _SOURCE.fullmatch(checked) or ".." in unquote(unquote(checked)).split("/"):
        schemes = ", ".join(f"{scheme}:/" for scheme in _SCHEMES)
        raise common.refuse("source", checked[:80], f"a URI without '..', with one of {schemes}")
    return checked


def check_alias(alias: object) -> str:
    """The name of an alias.

    Raises:
        InvalidRequest: It is none, or means something else already.
    """
    checked = checks.check_value("alias", alias, 255)
    if not _ALIAS.fullmatch(checked) or _VERSION_ALIAS.fullmatch(checked) or (
        checked.lower() == "latest"
    ):  # fmt: skip
        allowed = "1 to 255 letters, digits, '_' and '-', and neither 'latest' nor 'v' and a number"
        raise common.refuse("alias", checked[:80], allowed)
    return checked


def check_tags(tags: Mapping[str, object]) -> dict[str, str]:
    """Tags.

    Raises:
        InvalidRequest: One is wrong.
    """
    return checks.check_pairs("tags", tags, LONGEST_TAG)


def check_stage(field: str, value: Any) -> Stage:
    """The stage that a client names, in capitals or not.

    Raises:
        InvalidRequest: There is no such stage.
    """
    for stage in Stage:
        if isinstance(value, str) and value.lower() == stage.value.lower():
            return stage
    raise common.refuse(field, str(value)[:80], ", ".join(Stage))


def no_model(name: str) -> NotFound:
    """There is no such registered model."""
    shown = name[:80]
    return NotFound(f"there is no registered model {shown!r}", field="name", value=shown)


def no_version(name: str, version: object) -> NotFound:
    """The model has no such version."""
    shown = str(version)[:40]
    return NotFound(
        f"the model {name[:80]!r} has no version {shown!r}", field="version", value=shown
    )
