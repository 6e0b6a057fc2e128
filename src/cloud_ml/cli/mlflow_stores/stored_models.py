"""What a store of MLflow holds of models: logged ones, and registered ones with their versions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

STAGES = ("None", "Staging", "Production", "Archived")
READY, FAILED = "LOGGED_MODEL_READY", "LOGGED_MODEL_UPLOAD_FAILED"
LOGGED_STATES = ("", "LOGGED_MODEL_PENDING", READY, FAILED)
"""The state of a logged model, by its number in stores."""
_ARTIFACTS = re.compile(r"(?:^|/)([^/]+)/artifacts(?:/(.*))?$")


@dataclass(frozen=True)
class StoredLoggedModel:
    """A model that a run has logged. ``id`` is the store's. ``files`` is the folder of its files, if it
    is below that of the store.
    """

    id: str
    name: str
    model_type: str
    source_run: str
    state: str
    params: Mapping[str, str]
    tags: Mapping[str, str]
    files: Path | None


@dataclass(frozen=True)
class StoredVersion:
    """A version of a registered model. ``source`` is the URI of its files, as the store has it."""

    number: int
    source: str
    run: str
    logged_model: str
    description: str
    stage: str
    tags: Mapping[str, str]


@dataclass(frozen=True)
class StoredRegisteredModel:
    """A registered model with its versions, by their numbers, and the numbers of its aliases."""

    name: str
    description: str
    tags: Mapping[str, str]
    aliases: Mapping[str, int]
    versions: Sequence[StoredVersion]


def owner_and_path(source: str) -> tuple[str, str]:
    """The id of the run or the logged model that a URI of files names, and the path below its
    artifacts. Both are empty if it names none.

    >>> owner_and_path("runs:/r1/model"), owner_and_path("models:/m-1")
    (('r1', 'model'), ('m-1', ''))
    >>> owner_and_path("file:///mlruns/0/r1/artifacts/model")
    ('r1', 'model')
    """
    scheme, slash, rest = source.partition(":/")
    if slash and scheme in ("runs", "models"):
        owner, _, path = rest.strip("/").partition("/")
        return owner, path
    found = _ARTIFACTS.search(source)
    return (found[1], found[2] or "") if found else ("", "")


def logged_state(value: object) -> str:
    """The state of a logged model by its number; of one that was never ready, that it has failed."""
    if isinstance(value, int) and 1 <= value < len(LOGGED_STATES):
        return LOGGED_STATES[value] if value > 1 else FAILED
    return READY if value in (READY, "READY") else FAILED
