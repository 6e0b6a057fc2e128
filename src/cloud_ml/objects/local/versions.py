"""Removes an object only while it has the version that the caller knows."""

from __future__ import annotations

import contextlib
import os
import secrets

from cloud_ml.objects.base import other_version
from cloud_ml.objects.local import tree
from cloud_ml.objects.local.transfer import object_info
from cloud_ml.objects.local.uploads import Uploads


def remove_version(
    uploads: Uploads, folder: int, name: bytes, *, bucket: str, key: str, etag: str
) -> bool:
    """Remove the plain file ``name`` if its ETag is ``etag``; returns whether there was a file.

    A writer may replace the file between the look at its status and its removal. So the file moves
    aside first, and what was moved decides: a newer version goes back, unless an even newer one
    stands in its place by then.

    Raises:
        PreconditionFailed: The file has another version; it stays.
    """
    status = tree.file_status(folder, name)
    if status is None:
        return False
    if object_info(bucket, key, status).etag != etag:
        raise other_version(bucket, key, etag)
    with tree.opened_path(uploads.folder) as aside:
        moved = secrets.token_hex(16).encode()
        try:
            os.rename(name, moved, src_dir_fd=folder, dst_dir_fd=aside)
        except FileNotFoundError:
            return False
        status = tree.file_status(aside, moved)
        unchanged = status is not None and object_info(bucket, key, status).etag == etag
        if not unchanged:
            with contextlib.suppress(FileExistsError):
                os.link(moved, name, src_dir_fd=aside, dst_dir_fd=folder, follow_symlinks=False)
        os.unlink(moved, dir_fd=aside)
        os.fsync(folder)
    if not unchanged:
        raise other_version(bucket, key, etag)
    return True
