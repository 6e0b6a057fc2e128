"""Trainers of tests of the engine, which lie anywhere."""

from __future__ import annotations

from pathlib import Path


class PathsAsDigests:
    """Finds each trainer under its path, which its source names in place of a digest."""

    def file(self, digest: str, name: str) -> Path:
        del name
        return Path(digest)
