"""What the processes of an attempt use, sampled every few seconds: a file of bounded size.

Each line is a JSON object with the fields of ``UsagePoint``. When the file has grown to
``MOST_BYTES``, it becomes ``usage.old.jsonl`` and a new one begins.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from cloud_ml.engines.abilities import UsagePoint
from cloud_ml.errors import CloudMlError
from cloud_ml.models import codec

MOST_BYTES = 4 << 20
_NAME, _OLD = "usage.jsonl", "usage.old.jsonl"
_LONGEST_LINE = 256
"""Bytes of a sample, with some to spare."""


def add(folder: Path, point: UsagePoint) -> None:
    """Add a sample to those of the attempt. A full disk loses it."""
    line = json.dumps(codec.encode(point)) + "\n"
    with contextlib.suppress(OSError):
        with (folder / _NAME).open("a", encoding="utf-8") as file:
            file.write(line)
            size = file.tell()
        if size >= MOST_BYTES:
            (folder / _NAME).replace(folder / _OLD)


def latest(folder: Path, most: int) -> Sequence[UsagePoint]:
    """The last ``most`` samples of the attempt, oldest first. Lines that a full disk or a power
    cut has torn are left out.
    """
    lines = _last_lines(folder / _NAME, most)
    if len(lines) < most:
        lines = _last_lines(folder / _OLD, most - len(lines)) + lines
    return [point for line in lines if (point := _decode_point(line)) is not None]


def _last_lines(path: Path, most: int) -> list[bytes]:
    """Reads no more of the file than ``most`` lines take."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        start = max(0, file.seek(0, os.SEEK_END) - most * _LONGEST_LINE)
        file.seek(start)
        lines = file.read().splitlines()
        return lines[1 if start else 0 :][-most:]  # the first may begin before what was read
    return []


def _decode_point(line: bytes) -> UsagePoint | None:
    try:
        return codec.decode(UsagePoint, json.loads(line))
    except (ValueError, CloudMlError):
        return None
