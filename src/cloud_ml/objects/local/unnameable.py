"""Files that a job has put into a bucket under names that no key has: they are no objects, but
they take room.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator

from cloud_ml.errors import InvalidRequest
from cloud_ml.models.common import refuse
from cloud_ml.models.paths.escaping import escape_path
from cloud_ml.objects.base import check_object_key
from cloud_ml.objects.info import Amount, UnnameableFile
from cloud_ml.objects.local import tree


def measure(top: int, prefix: str, stop: Callable[[], bool]) -> Amount:
    """How many such files there are below an open folder under paths that start with ``prefix``,
    and their bytes.

    Links are not followed. One folder is open at a time. ``stop`` is asked before each folder; once
    it says so, the answer is what was counted so far.
    """
    start = prefix.encode("utf-8", "surrogateescape")
    files = size = 0
    waiting: list[bytes] = [b""]
    while waiting:
        if stop():
            return Amount(files, size, complete=False)
        folder = waiting.pop()
        for path, status in _entries(top, folder):
            if stat.S_ISDIR(status.st_mode):
                below = path + b"/"
                if below.startswith(start) or start.startswith(below):
                    waiting.append(below)
            elif path.startswith(start):
                files += 1
                size += status.st_size
    return Amount(files, size)


def files(
    top: int, prefix: bytes, *, deep: bool, limit: int, stop: Callable[[], bool]
) -> list[UnnameableFile]:
    """Such files whose paths start with ``prefix``, at most ``limit``; unless ``deep`` those of
    one folder only.
    """
    found: list[UnnameableFile] = []
    waiting: list[bytes] = [b""] if deep else [prefix[: prefix.rfind(b"/") + 1]]
    while waiting and len(found) < limit and not stop():
        folder = waiting.pop()
        for path, status in sorted(_entries(top, folder), key=lambda entry: entry[0]):
            below = path + b"/"
            if stat.S_ISDIR(status.st_mode):
                if deep and (below.startswith(prefix) or prefix.startswith(below)):
                    waiting.append(below)
            elif path.startswith(prefix):
                found.append(UnnameableFile(path, status.st_size, status.st_mtime))
    return sorted(found)[:limit]


def remove(top: int, path: bytes) -> bool:
    """Remove such a file; returns whether there was one.

    Raises:
        InvalidRequest: The path leaves the bucket, or it is a key.
    """
    *folders, name = path.split(b"/")
    if any(part in (b"", b".", b"..") or b"\0" in part for part in (*folders, name)) or _is_key(
        path
    ):
        raise refuse(
            "name",
            escape_path(path),
            "the name of a file that no key can name, as `cloudml storage ls` prints it",
        )
    with tree.opened_if_there(top, folders) as folder:
        return folder is not None and tree.remove_file(folder, name)


def _entries(top: int, folder: bytes) -> Iterator[tuple[bytes, os.stat_result]]:
    """Folders in a folder, and its plain files that no key names."""
    try:
        with (
            tree.open_folder(top, folder.split(b"/")[:-1]) as descriptor,
            os.scandir(descriptor) as entries,
        ):
            for entry in entries:
                path = folder + os.fsencode(entry.name)
                is_folder = entry.is_dir(follow_symlinks=False)
                if is_folder or (entry.is_file(follow_symlinks=False) and not _is_key(path)):
                    yield path, entry.stat(follow_symlinks=False)
    except OSError:  # gone, or closed by its owner
        return


def _is_key(path: bytes) -> bool:
    try:
        check_object_key(path.decode())
    except (UnicodeDecodeError, InvalidRequest):
        return False
    return True
