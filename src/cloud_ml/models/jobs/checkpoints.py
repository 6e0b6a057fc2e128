"""The checkpoints of a job, as the modern surface answers them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cloud_ml.models import common

MOST_KEPT = 100
_EXAMPLE = 'an object such as {"keep": 3}'
_FIELDS = ("keep", "path")
_FOLDERS_OF_PLATFORM = (".checkpoints", ".outputs")


@dataclass(kw_only=True)
class CheckpointPolicy:
    """Where the checkpoints of a job are, and what becomes of them.

    Args:
        keep: The newest so many that the code has reported are kept (1 to 100). Older ones are
            removed when the next is complete. By default, all are kept.
        path: The folder for them, such as ``fds://bucket/checkpoints/linear``. A job goes on from
            what is there, also from that of an earlier job. By default, each job has a folder of
            its own.
    """

    keep: int | str | None = None
    path: str | None = None

    def validate(self, path: str) -> None:
        """Check every field and bring values into their canonical form."""
        if self.keep is not None:
            self.keep = common.check_count(f"{path}.keep", self.keep, most=MOST_KEPT)
        if self.path is not None:
            self.path = _check_folder(f"{path}.path", self.path)
            if self.keep is not None:
                allowed = f"nothing beside {path}.path, as another job may use that folder"
                raise common.refuse(f"{path}.keep", self.keep, allowed)


def checkpoint_policy(path: str, value: Any) -> CheckpointPolicy:
    """A policy as it was given: ready, or as a plain dictionary.

    Raises:
        InvalidRequest: A field is wrong or not known.
    """
    if isinstance(value, Mapping):
        if unknown := next((name for name in value if name not in _FIELDS), None):
            raise common.refuse(f"{path}.{unknown}", value[unknown], "one of " + ", ".join(_FIELDS))
        value = CheckpointPolicy(**value)
    if not isinstance(value, CheckpointPolicy):
        raise common.refuse(path, value, _EXAMPLE)
    value.validate(path)
    return value


def _check_folder(field: str, value: object) -> str:
    uri = common.parse_object_uri(field, value)
    key = uri.key.rstrip("/")
    if not key or key.split("/")[0] in _FOLDERS_OF_PLATFORM:
        allowed = (
            "a folder in a bucket, such as fds://bucket/checkpoints, and none of the platform's"
        )
        raise common.refuse(field, value, allowed)
    return f"fds://{uri.bucket}/{key}"


@dataclass(frozen=True, kw_only=True)
class JobCheckpoint:
    """A complete checkpoint: a file, a folder, or the common beginning of several files.

    ``path`` is relative to the folder of the job's checkpoints, ``uri`` where it is. ``size`` is in
    bytes, of at most a thousand files. ``attempt`` has saved it; ``None`` if that is not known, as
    of those that TensorFlow notes itself.
    """

    path: str
    uri: str
    step: int | None = None
    saved_at: datetime
    size: int = 0
    attempt: int | None = None


@dataclass(frozen=True, kw_only=True)
class NewestCheckpoint:
    """The newest complete checkpoint of a job, as its description names it.

    ``path``, ``uri``, ``step``, ``saved_at`` and ``attempt`` are as in ``JobCheckpoint``.
    """

    path: str
    uri: str
    step: int | None = None
    saved_at: datetime
    attempt: int | None = None


@dataclass(frozen=True, kw_only=True)
class JobCheckpoints:
    """The checkpoints of a job in the folder ``uri``, the oldest first; ``uri`` is empty if the
    job has none.
    """

    uri: str
    items: list[JobCheckpoint]
