"""The second half of a move: removes a source once its copy is safe, and only while it is what
was copied.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from cloud_ml.cli.storage.file_version import FileVersion
from cloud_ml.errors import Conflict, NotFound, PreconditionFailed

if TYPE_CHECKING:
    from cloud_ml.cli.storage.plan import Item
    from cloud_ml.models.storage.objects import StoredObject
    from cloud_ml.sdk.storage.client import Storage


def remove_source(store: Storage, item: Item, stored: StoredObject | None) -> None:
    """Remove the source of a finished copy.

    The target is verified and durable first. A source that changed after it was planned stays.

    Args:
        store: The server's side.
        item: What was copied.
        stored: What the server answered to the copy; ``None`` after a download.

    Raises:
        Conflict: The source or the target has changed. The source stays.
        OSError: The target cannot be written to its disk, or the source cannot be removed.
    """
    if stored is None:
        _check_file(item)
    else:
        _check_object(store, item, stored)
    if isinstance(item.version, FileVersion):
        _remove_file(item, item.version)
    elif item.version:
        _remove_object(store, item, item.version)
    else:
        raise _source_conflict(item, "the server names no version of the source")


def _check_object(store: Storage, item: Item, stored: StoredObject) -> None:
    try:
        found = store.head(item.target)
    except NotFound:
        raise _source_conflict(item, "the target was removed meanwhile") from None
    if (found.etag, found.size) != (stored.etag, stored.size):
        raise _source_conflict(item, "the target was replaced meanwhile")
    if stored.size != item.size:
        raise _source_conflict(item, "the source has changed meanwhile")


def _check_file(item: Item) -> None:
    """The download has checked the digest; what is left is to have it on the disk."""
    target = Path(item.target)
    for path in (target, target.parent):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
            size = os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
        if path is target and size != item.size:
            raise _source_conflict(item, "the target or the source has changed meanwhile")


def _remove_file(item: Item, version: FileVersion) -> None:
    path = Path(item.source)
    now = FileVersion.of(path.stat())
    same_content = (now.device, now.inode, now.size, now.modified_ns) == (
        version.device, version.inode, version.size, version.modified_ns
    )  # fmt: skip
    if not same_content or (version.changed_ns and now.changed_ns != version.changed_ns):
        raise _source_conflict(item, "the source has changed meanwhile")
    path.unlink()


def _remove_object(store: Storage, item: Item, etag: str) -> None:
    try:
        store.delete(item.source, if_match=etag)
    except PreconditionFailed:
        raise _source_conflict(item, "the source has changed meanwhile") from None
    except NotFound:
        return  # somebody else removed it; what it was is in the target


def _source_conflict(item: Item, why: str) -> Conflict:
    return Conflict(
        f"copied to {item.target}, but not removed: {why}", field="source", value=item.source
    )
