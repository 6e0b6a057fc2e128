"""The outline of an archive of code: its Python files as empty ones, to look for modules in."""

from __future__ import annotations

import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path, PurePosixPath

_LARGEST = 32 * 2**20
"""Bytes. Of a larger archive nobody waits for the names."""
_MOST_FILES = 5_000
_DAMAGED = (
    OSError,
    EOFError,
    ValueError,
    NotImplementedError,
    struct.error,
    zipfile.BadZipFile,
    tarfile.TarError,
    lzma.LZMAError,
    zlib.error,
)
_PROJECT_FILES = ("pyproject.toml", "setup.py")


def write_outline(archive: Path, folder: Path) -> None:
    """Make the archive's Python files and those that tell of a project, empty, in ``folder``.

    A single folder at the top is left out, as it is where the job runs. Nothing is made of what is
    no archive, too large, or damaged.
    """
    paths = [path for path in _paths(archive) if not path.is_absolute() and ".." not in path.parts]
    tops = {path.parts[0] for path in paths if path.parts}
    depth = 1 if len(tops) == 1 and all(len(path.parts) > 1 for path in paths) else 0
    for path in paths:
        if path.suffix == ".py" or path.name in _PROJECT_FILES:
            place = folder.joinpath(*path.parts[depth:])
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()


def _paths(archive: Path) -> list[PurePosixPath]:
    """The paths of the files in the archive."""
    if archive.stat().st_size > _LARGEST:
        return []
    try:
        return [PurePosixPath(name) for name in islice(_names(archive), _MOST_FILES)]
    except _DAMAGED:
        return []


def _names(archive: Path) -> Iterator[str]:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as members:
            yield from (name for name in members.namelist() if not name.endswith("/"))
    elif tarfile.is_tarfile(archive):
        with tarfile.open(archive) as members:
            yield from (member.name for member in members if member.isfile())
