"""A gang as supervisors are told it: with the files and folders of this machine that it needs.

Only the engine, a part of the server, knows where buckets and trainers are kept. So it looks them
up as the last step before the hand-over, and no process beyond it asks where they are.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Protocol

from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.gang import Gang, TrainerSource
from cloud_ml.engines.local.isolation.bind_mounts import BindMount, identity
from cloud_ml.errors import NotFound, Unavailable
from cloud_ml.objects.base import LocalFolders

_SHOWN = 5
_FIELDS = [each.name for each in fields(Gang)]


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
        Unavailable: A bucket is not there: it was removed after the gang was planned.
        OSError: The store cannot be read.
    """
    known = {name: getattr(gang, name) for name in _FIELDS}
    trainer_file, problem = _trainer_file(gang.environment.trainer, packages)
    if problem:
        return ResolvedGang(**known, refusal=problem, refusal_reason=Reason.TRAINER_NOT_FOUND)
    buckets = sorted({mount.bucket for mount in gang.mounts})
    if buckets and store is None:
        return ResolvedGang(**known, refusal=_no_store(buckets))
    folders = {} if store is None else {name: _folder(name, store) for name in buckets}
    known_by = {name: identity(folder) for name, folder in folders.items()}
    bound = [
        BindMount(folders[one.bucket], one.target, one.writable, known_by[one.bucket])
        for one in gang.mounts
    ]
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


def _folder(bucket: str, store: LocalFolders) -> str:
    try:
        return str(store.folder(bucket))
    except NotFound as error:
        raise Unavailable(f"the bucket {bucket} is gone; the attempt is planned again") from error


def _no_store(buckets: list[str]) -> str:
    names = ", ".join(buckets[:_SHOWN])
    return f"this engine has no access to the bucket {names}: it was given no object store"
