"""Files of a folder that a tenant has filled: listed in bounded time and memory, links not
followed.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from cloud_ml.text_encoding import decode_text

MAX_ENTRIES = 20_000
"""Entries of all folders together that one listing looks at; the member limit of archives is
above that.
"""
MAX_DEPTH = 64
"""Folders inside each other; archives may not be deeper either."""


def python_files(folder: Path) -> Iterator[str]:
    """Paths of the Python files below ``folder``, relative to it, each folder in the order of
    names.

    What lies beyond ``MAX_ENTRIES`` or ``MAX_DEPTH`` is left out. A generator without recursion:
    the depth of a tree must not be the depth of our stack.
    """
    left = MAX_ENTRIES
    waiting = [("", 0)]
    while waiting and left > 0:
        below, depth = waiting.pop()
        entries = _entries(folder / below, left)
        left -= len(entries)
        for entry in entries:
            if entry.name.endswith(".py") and entry.is_file(follow_symlinks=False):
                yield f"{below}{entry.name}"
        folders = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        if depth < MAX_DEPTH:
            waiting += [(f"{below}{name}/", depth + 1) for name in reversed(folders)]


def has_name(folder: Path, *, prefix: str = "", suffix: str = "") -> bool:
    """Whether ``folder`` itself holds a name that begins and ends so, among its first
    ``MAX_ENTRIES``.
    """
    return any(
        entry.name.startswith(prefix) and entry.name.endswith(suffix)
        for entry in _entries(folder, MAX_ENTRIES)
    )


def read_text(file: Path, limit_bytes: int) -> str:
    """The text of a plain file of at most ``limit_bytes``, in UTF-8 or as its byte order mark says;
    links are not followed.

    Raises:
        ValueError: It is larger.
        OSError: It is no plain file, or cannot be read.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as opened:
        content = opened.read(limit_bytes + 1)
    if len(content) > limit_bytes:
        raise ValueError(f"{file.name} is larger than {limit_bytes} bytes")
    return decode_text(content, "replace")


def _entries(folder: Path, most: int) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return sorted(itertools.islice(found, most), key=lambda entry: entry.name)
    except OSError:
        return []
