"""Folders that an engine takes for buckets."""

from __future__ import annotations

from pathlib import Path

from cloud_ml.errors import NotFound


class BucketsBelow:
    """Buckets that are the folders below ``root``, whatever their names."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def folder(self, bucket: str) -> Path:
        if not (self._root / bucket).is_dir():
            raise NotFound(f"there is no bucket {bucket}")
        return self._root / bucket
