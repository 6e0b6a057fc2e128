"""Reading and writing the small files of a control-group file system."""

from __future__ import annotations

import os
from pathlib import Path

from cloud_ml.engines.local.small_files import content


def write(path: Path, value: object) -> None:
    """Write a value to an existing file.

    Raises:
        OSError: The kernel refuses it.
    """
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        # Use one write(2) for the whole value: the kernel treats each write as a separate value.
        os.write(file, str(value).encode("ascii"))
    finally:
        os.close(file)


def number(path: Path) -> int:
    """The number in a file; 0 where there is none."""
    try:
        return int(content(path))
    except (OSError, ValueError):
        return 0


def numbers(path: Path) -> list[int]:
    """The numbers in a file; none where it cannot be read."""
    try:
        return [int(word) for word in content(path).split()]
    except (OSError, ValueError):
        return []


def table(path: Path) -> dict[str, int]:
    """The ``name number`` lines of a file; none where it cannot be read."""
    try:
        pairs = [line.split() for line in content(path).decode("ascii").splitlines()]
        return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}
    except (OSError, ValueError):
        return {}


def subfolders(folder: Path) -> list[str]:
    """Names of the folders in a folder; none where it cannot be read."""
    try:
        return [entry.name for entry in os.scandir(folder) if entry.is_dir()]
    except OSError:
        return []


def remove(folder: Path) -> bool:
    """Remove a group's folder and those below; false while somebody is in it, gone already is
    success.
    """
    if _is_gone(folder):
        return True
    children = subfolders(folder)  # hardly ever: looked for when it does not go without
    for child in children:
        remove(folder / child)
    return bool(children) and _is_gone(folder)


def _is_gone(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
