"""What is known of objects without reading them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What is known of an object without reading it. ``size`` in bytes.

    ``etag`` changes whenever the content does. ``sha256`` is the content's, in lower-case hex,
    where it is known without reading: after a write, and often beside a read.
    """

    bucket: str
    key: str
    size: int
    modified: datetime
    etag: str
    sha256: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Listing:
    """A page of a bucket: objects and, when a delimiter was given, the folders at this level.

    ``next`` continues the list (pass it as ``after``); ``None`` at the end.
    """

    objects: Sequence[ObjectInfo]
    folders: Sequence[str]
    next: str | None


@dataclass(frozen=True, slots=True)
class Amount:
    """How much there is: objects, and their bytes. Not ``complete``: there is more, counting was
    stopped.
    """

    objects: int
    size: int
    complete: bool = True


@dataclass(frozen=True, slots=True, order=True)
class UnnameableFile:
    """A file in a bucket whose path can be no key. ``modified`` in seconds since 1970."""

    path: bytes
    size: int
    modified: float
