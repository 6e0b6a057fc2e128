"""Remove folders nobody needs, while jobs may fill them again at any moment.

Nothing here removes a plain file: a folder that is not empty is left by the system itself.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Sequence

from cloud_ml.errors import Conflict
from cloud_ml.models.paths.escaping import escape_path
from cloud_ml.objects.local import tree

_DEPTH = 1024


def remove_empty(bucket: int, folders: Sequence[bytes]) -> None:
    """Remove the folder at ``folders`` and those above it, up to the first that is in use."""
    for depth in range(len(folders), 0, -1):
        try:
            with tree.open_folder(bucket, folders[: depth - 1]) as upper:
                os.rmdir(folders[depth - 1], dir_fd=upper)
        # ENOTEMPTY: a job has put something in meanwhile. Then the folders above are in use, too.
        except OSError:
            return


def clear(bucket: int, name: str) -> None:
    """Remove all that is no plain file: links, pipes, empty folders.

    Raises:
        Conflict: There is a plain file (also one that no key can name), or a folder as deep as no
            key can be.
    """
    at: list[bytes] = []
    while True:
        with in_use_is_conflict(name), tree.open_folder(bucket, at) as folder:
            subfolder = _clear_level(folder, name)
        if subfolder is not None:
            at.append(subfolder)
            if len(at) > _DEPTH:
                raise Conflict(
                    f"the bucket {name} has folders that are too deep",
                    hint="remove them from within a job",
                )
        elif at:
            with in_use_is_conflict(name), tree.open_folder(bucket, at[:-1]) as upper:
                os.rmdir(at.pop(), dir_fd=upper)
        else:
            return


def _clear_level(folder: int, bucket: str) -> bytes | None:
    """Remove links and the like; returns the first subfolder met, if any, before all is looked
    at.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            name = os.fsencode(entry.name)
            try:
                mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
                if stat.S_ISDIR(mode):
                    return name
                if stat.S_ISREG(mode):
                    raise Conflict(
                        f"the bucket {bucket} holds a file: {escape_path(name)}",
                        field="bucket",
                        value=bucket,
                    )
                os.unlink(name, dir_fd=folder)
            except FileNotFoundError:
                continue
    return None


@contextlib.contextmanager
def in_use_is_conflict(bucket: str) -> Iterator[None]:
    """Somebody who puts things in, or moves them about, meanwhile keeps the bucket."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
            raise
        raise Conflict(f"the bucket {bucket} is in use", field="bucket", value=bucket) from error
