"""What the modern surface answers about buckets and objects."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

PRESIGN_LIMIT_S = 604_800.0
"""How long a link may be good for where the operator has set nothing else."""


@dataclass(frozen=True, kw_only=True)
class StoredObject:
    """An object. ``size`` in bytes; ``etag`` changes with the content; ``sha256`` where it is
    known.
    """

    bucket: str
    key: str
    size: int
    modified: datetime
    etag: str
    sha256: str | None = None

    @property
    def uri(self) -> str:
        """Such as ``fds://bucket/key``."""
        return f"fds://{self.bucket}/{self.key}"


@dataclass(frozen=True, kw_only=True)
class UnnameableObject:
    r"""A file of a job in a bucket whose path can be no key. ``name`` has escapes, such as ``bad\xff.txt``."""

    bucket: str
    name: str
    size: int
    modified: datetime

    @property
    def uri(self) -> str:
        """How commands name it."""
        return f"fds://{self.bucket}/{self.name}"


@dataclass(frozen=True, kw_only=True)
class UnnameableObjects:
    """The first of them. ``complete`` is false if there are more."""

    items: list[UnnameableObject]
    complete: bool = True


@dataclass(frozen=True, kw_only=True)
class ObjectPage:
    """Objects, and folders (ending in '/') when a delimiter was asked for. ``next`` goes into
    ``after``.
    """

    objects: list[StoredObject]
    folders: list[str] = field(default_factory=list)
    next: str | None = None


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """A bucket of the caller's organisation. ``owner`` is the user who made it."""

    name: str
    org: str
    created_at: datetime
    owner: str = ""


@dataclass(frozen=True, kw_only=True)
class BucketPage:
    """Every bucket that the caller may see."""

    items: list[Bucket]


@dataclass(frozen=True, kw_only=True)
class CopyObject:
    """What to copy within the server: from an object to a key, maybe of another bucket of the
    organisation.
    """

    source_bucket: str
    source_key: str
    bucket: str
    key: str
    only_if_absent: bool = False


@dataclass(frozen=True, kw_only=True)
class BeginUpload:
    """An upload in several requests: in parts, or appended segment by segment.

    With ``sha256`` or ``resume``, to begin the same again is to go on; what is declared is checked.
    ``resume`` is a token of the client's choice for what it sends: 1 to 64 letters, digits, ``_``,
    ``.`` or ``-``.
    """

    key: str
    size: int | None = None
    sha256: str | None = None
    part_size: int | None = None
    resume: str | None = None


@dataclass(frozen=True, kw_only=True)
class UploadPart:
    """A part that has arrived. ``size`` in bytes."""

    number: int
    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class ReceivedBytes:
    """What has been appended to an upload: so many bytes from its beginning, and their SHA-256."""

    size: int = 0
    sha256: str = ""


@dataclass(frozen=True, kw_only=True)
class UploadInParts:
    """An upload under way. Every part or segment that arrives puts ``expires_at`` off."""

    id: str
    bucket: str
    key: str
    size: int | None
    sha256: str | None
    part_size: int | None
    parts: list[UploadPart] = field(default_factory=list)
    received: ReceivedBytes = field(default_factory=ReceivedBytes)
    expires_at: datetime


@dataclass(frozen=True, kw_only=True)
class UploadPage:
    """The uploads under way, without their parts."""

    items: list[UploadInParts]


@dataclass(frozen=True, kw_only=True)
class CompleteUpload:
    """Which parts make the object (all that has come, if left out), and what the whole must be."""

    sha256: str | None = None
    parts: list[UploadPart] | None = None
    only_if_absent: bool = False


@dataclass(frozen=True, kw_only=True)
class BatchOutcome:
    """What became of one object of a batch: the ``object``, or the ``error`` that kept it out."""

    key: str
    object: StoredObject | None = None
    error: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class BatchOutcomes:
    """What became of each object of a batch, in its order."""

    items: list[BatchOutcome]


@dataclass(frozen=True, kw_only=True)
class ReadObjects:
    """Which objects to read in one request."""

    keys: list[str]


@dataclass(frozen=True, kw_only=True)
class BucketUsage:
    """What is stored in a bucket, or in it under ``prefix``, as it was counted at ``counted_at``.

    Not ``complete``: there is more; the server gave up counting after a while.
    """

    bucket: str
    prefix: str = ""
    objects: int
    bytes: int
    complete: bool
    counted_at: datetime


@dataclass(frozen=True, kw_only=True)
class StorageUsage:
    """What an organisation stores, by bucket and in all."""

    items: list[BucketUsage]
    objects: int
    bytes: int
    complete: bool
