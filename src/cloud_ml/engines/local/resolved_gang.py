"""A gang as supervisors are told it: with the files and folders of this machine that it needs.

Only the engine, a part of the server, knows where buckets and trainers are kept. So it looks them
up as the last step before the hand-over, and no process beyond it asks where they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Protocol

from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.base import Gang, TrainerSource
from cloud_ml.errors import NotFound
from cloud_ml.objects.base import LocalFolders

_SHOWN = 5


@dataclass(frozen=True)
class BindMount:
    """The folder ``source`` of this machine is to be seen at ``target``."""

    source: str
    target: str
    writable: bool


class PackageFiles(Protocol):
    """Knows where trainers are kept on this machine."""

    def file(self, digest: str, name: str) -> Path:
        """The file with this name and digest.

        Raises:
            NotFound: It is not kept here.
        """


@dataclass(frozen=True)
class ResolvedGang(Gang):
    """``folders`` are its mounts, ``trainer_file`` is its trainer's path; empty without one.

    With a ``refusal`` there are none, and the attempt ends with this sentence and its reason.
    """

    folders: tuple[BindMount, ...] = ()
    trainer_file: str = ""
    refusal: str = ""
    refusal_reason: Reason = Reason.START_FAILED


def resolve(
    gang: Gang, store: LocalFolders | None, packages: PackageFiles | None = None
) -> ResolvedGang:
    """Look up the gang's trainer, and the folder of each bucket that it mounts. Blocking.

    Args:
        gang: As the contract of engines has it.
        store: Knows the folders; ``None`` for an engine that reaches no buckets.
        packages: Knows the trainers; ``None`` for an engine that reaches none.

    Raises:
        OSError: The store cannot be read.
    """
    known = {each.name: getattr(gang, each.name) for each in fields(Gang)}
    trainer_file, problem = _trainer_file(gang.environment.trainer, packages)
    if problem:
        return ResolvedGang(**known, refusal=problem, refusal_reason=Reason.TRAINER_NOT_FOUND)
    found, missing = _folders({mount.bucket for mount in gang.mounts}, store)
    if missing:
        return ResolvedGang(**known, refusal=_refusal(missing, store))
    bound = [BindMount(found[one.bucket], one.target, one.writable) for one in gang.mounts]
    return ResolvedGang(**known, folders=tuple(bound), trainer_file=trainer_file)


def _trainer_file(trainer: TrainerSource | None, packages: PackageFiles | None) -> tuple[str, str]:
    """The path of the trainer, and why there is none. Both are empty where none is needed."""
    if trainer is None or trainer.problem:
        return "", ""
    if packages is None:
        return "", f"this engine has no access to the trainer {trainer.name}"
    try:
        return str(packages.file(trainer.digest, trainer.name)), ""
    except NotFound:
        return "", f"the server keeps no trainer {trainer.name} with the SHA-256 {trainer.digest}"


def _folders(buckets: set[str], store: LocalFolders | None) -> tuple[Mapping[str, str], list[str]]:
    """The folder of each bucket that has one, and the names of the others."""
    if store is None:
        return {}, sorted(buckets)
    found: dict[str, str] = {}
    missing: list[str] = []
    for bucket in sorted(buckets):
        try:
            found[bucket] = str(store.folder(bucket))
        except NotFound:
            missing.append(bucket)
    return found, missing


def _refusal(missing: list[str], store: LocalFolders | None) -> str:
    names = ", ".join(missing[:_SHOWN])
    if store is None:
        return f"this engine has no access to the bucket {names}: it was given no object store"
    return (
        f"the server has lost the folder of the bucket {names}; ask its operator to start it again"
    )
