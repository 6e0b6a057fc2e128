"""What the modern surface answers about buckets and objects, and about the caller."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, kw_only=True)
class StoredObject:
    """An object. ``size`` in bytes; ``etag`` changes with the content."""

    bucket: str
    key: str
    size: int
    modified: datetime
    etag: str

    @property
    def uri(self) -> str:
        """Such as ``fds://bucket/key``."""
        return f"fds://{self.bucket}/{self.key}"


@dataclass(frozen=True, kw_only=True)
class ObjectPage:
    """Objects, and folders (ending in '/') when a delimiter was asked for. ``next`` goes into ``after``."""

    objects: list[StoredObject]
    folders: list[str] = field(default_factory=list)
    next: str | None = None


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """A bucket of the caller's organisation."""

    name: str
    org: str
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class BucketPage:
    """Every bucket that the caller may see."""

    items: list[Bucket]


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


@dataclass(frozen=True, kw_only=True)
class WhoAmI:
    """Whom the server takes the caller for."""

    org: str
    org_id: str
    user: str
    role: str
    default_bucket: str


@dataclass(frozen=True, kw_only=True)
class ServerInfo:
    """What answers: its version and what this machine gives to jobs.

    ``isolation`` maps a fence (sandbox, limits, network, …) to what is in force; ``missing`` lists
    sentences that say what the machine lacks and how to get it.
    """

    version: str
    isolation: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
