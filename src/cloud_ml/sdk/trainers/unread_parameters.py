"""Parameters of a study that its local code does not mention: mostly names that are misspelt."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from cloud_ml.errors import CloudMlError
from cloud_ml.sdk.trainers.packaging import list_files

_FILES, _FILE_BYTES, _ALL_BYTES = 500, 1 << 20, 16 << 20
"""Of code beyond these bounds, nothing is said."""


def unread_parameters(source: Path, names: Iterable[str]) -> list[str]:
    """The names that no file of the code has as a word; ``-`` and ``_`` are the same.

    A name that is found may still be unread, and a library may read one that is not: this is for
    hints. Empty for archives, for what cannot be packed, and for code beyond the bounds.
    """
    left = {name: _pattern_of(name) for name in names}
    try:
        files = [file for _, file in list_files(source)]
        sizes = [file.stat().st_size for file in files]
        if not files or len(files) > _FILES or max(sizes) > _FILE_BYTES or sum(sizes) > _ALL_BYTES:
            return []
        for file in files:
            text = file.read_bytes()
            left = {name: word for name, word in left.items() if not word.search(text)}
    except (OSError, CloudMlError):  # what cannot be packed is refused when it is
        return []
    return list(left)


def _pattern_of(name: str) -> re.Pattern[bytes]:
    """The name as a word."""
    parts = (re.escape(part) for part in re.split("[-_]", name))
    return re.compile(rb"(?<![\w-])-{0,2}" + "[-_]".join(parts).encode() + rb"(?![\w-])")
