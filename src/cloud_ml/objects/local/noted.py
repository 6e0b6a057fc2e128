"""The digest of a file, noted on the file itself, so that nobody has to read it again.

An extended attribute, bound to the file's size and time of change: what a job writes later makes the note
void. Where the file system keeps none, digests are computed when they are asked for.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re

_NAME = "user.cloudml.sha256"
_NOTE = re.compile(r"([0-9a-f]{64}) (\d+) (\d+)")
_BLOCK = 1 << 20


def note(descriptor: int, sha256: str) -> None:
    """Note the digest of an open file that is written to its end; where that cannot be done, nothing happens."""
    status = os.fstat(descriptor)
    with contextlib.suppress(OSError):
        os.setxattr(descriptor, _NAME, f"{sha256} {status.st_size} {status.st_mtime_ns}".encode())


def noted(descriptor: int) -> str | None:
    """The digest that was noted, if the file is still the same."""
    try:
        found = _NOTE.fullmatch(os.getxattr(descriptor, _NAME).decode("ascii", "replace"))
    except OSError:
        return None
    status = os.fstat(descriptor)
    return found[1] if found and (int(found[2]), int(found[3])) == (status.st_size, status.st_mtime_ns) else None


def digest(descriptor: int) -> str:
    """The digest of an open file: the noted one, or one that is computed now, and noted if the file stood still."""
    if (known := noted(descriptor)) is not None:
        return known
    before = os.fstat(descriptor)
    whole, position = hashlib.sha256(), 0
    while position < before.st_size and (block := os.pread(descriptor, _BLOCK, position)):
        whole.update(block[: before.st_size - position])
        position += len(block)
    after = os.fstat(descriptor)
    if (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns):
        note(descriptor, whole.hexdigest())
    return whole.hexdigest()
