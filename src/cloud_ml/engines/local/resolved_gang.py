"""A gang as supervisors are told it: with the folders of this machine that its buckets are.

Only the engine, a part of the server, knows the object store. So it looks the folders up as the
last step before the hand-over, and no process beyond it asks where a bucket is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from cloud_ml.engines.base import Gang
from cloud_ml.errors import NotFound
from cloud_ml.objects.base import LocalFolders

_SHOWN = 5


@dataclass(frozen=True)
class BoundFolder:
    """The folder ``source`` of this machine is to be seen at ``target``."""

    source: str
    target: str
    writable: bool


@dataclass(frozen=True)
class ResolvedGang(Gang):
    """``folders`` are its mounts. With a ``refusal`` there are none, and the attempt ends with
    this sentence.
    """

    folders: tuple[BoundFolder, ...] = ()
    refusal: str = ""


def resolve(gang: Gang, store: LocalFolders | None) -> ResolvedGang:
    """Look up the folder of each bucket that the gang mounts. Blocking.

    Args:
        gang: As the contract of engines has it.
        store: Knows the folders; ``None`` for an engine that reaches no buckets.

    Raises:
        OSError: The store cannot be read.
    """
    found, missing = _folders({mount.bucket for mount in gang.mounts}, store)
    known = {each.name: getattr(gang, each.name) for each in fields(Gang)}
    if missing:
        return ResolvedGang(**known, refusal=_refusal(missing, store))
    bound = [BoundFolder(found[one.bucket], one.target, one.writable) for one in gang.mounts]
    return ResolvedGang(**known, folders=tuple(bound))


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
