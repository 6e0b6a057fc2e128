"""Which version of a local file was seen."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileVersion:
    """What changes when a local file does. ``changed_ns`` is 0 for a file of several names.

    A move that removes one name of a file also sets the time of its last change of status.
    """

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileVersion:
        """The version that a status describes."""
        changed_ns = status.st_ctime_ns if status.st_nlink == 1 else 0
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, changed_ns)
