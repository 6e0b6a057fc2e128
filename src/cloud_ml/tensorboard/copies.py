"""The copies that a mirror keeps on the disk, and of which versions they are."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO


@dataclass(frozen=True)
class FileKey:
    """A file: the number of its source, and its path there."""

    source: int
    path: str


class LocalError(Exception):
    """A copy cannot be read or written here."""


class Copies:
    """Copies of files, below a folder for each source.

    Args:
        root: The folder of these folders.

    Attributes:
        used: Bytes of all copies.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._etags: dict[FileKey, str] = {}
        self._saved_at = time.monotonic()
        self.used = 0

    def find(self, sources: int) -> None:
        """Look for copies of an earlier attempt. The end of one whose version is not known is read
        again and compared.
        """
        known = self._load_etags()
        self._etags, self.used = {}, 0
        for source in range(sources):
            folder = self._root / str(source)
            folder.mkdir(parents=True, exist_ok=True)
            for parent, _, names in os.walk(folder):
                for name in names:
                    key = FileKey(source, str(Path(parent, name).relative_to(folder)))
                    etag, size = known.get(key, ("", 0))
                    self._etags[key] = etag if size == self.size(key) else ""
                    self.used += self.size(key)

    def of(self, source: int) -> Sequence[FileKey]:
        """The copies of a source."""
        return [key for key in self._etags if key.source == source]

    def etag(self, key: FileKey) -> str | None:
        """The version of a complete copy; empty for any other, ``None`` without one."""
        return self._etags.get(key)

    def size(self, key: FileKey) -> int:
        """The bytes that a copy has; 0 without one."""
        try:
            return self._path(key).stat().st_size if self._path(key).is_file() else 0
        except OSError:
            return 0

    def read(self, key: FileKey, start: int, end: int) -> bytes:
        """The bytes of a copy from ``start`` to ``end``.

        Raises:
            LocalError: It cannot be read.
        """
        if start == end:
            return b""
        with _local_errors(), self._path(key).open("rb") as file:
            file.seek(start)
            return file.read(end - start)

    def append(self, key: FileKey, content: bytes) -> None:
        """Add bytes to a copy, or make it.

        Raises:
            LocalError: The disk is full, or the path cannot be had.
        """
        self.used -= self.size(key)
        try:
            with _local_errors():
                self._make_place(key)
                self._etags[key] = ""
                with self._path(key).open("ab") as file:
                    file.write(content)
        finally:
            self.used += self.size(key)

    def complete(self, key: FileKey, etag: str) -> None:
        """Note that a copy is of this version."""
        self._etags[key] = etag

    def draft(self) -> Draft:
        """An empty file for ``take_draft``.

        Raises:
            LocalError: The disk is full.
        """
        with _local_errors():
            return Draft(self._draft.open("wb"))

    def take_draft(self, key: FileKey, etag: str) -> None:
        """Put the draft in the place of a copy.

        Raises:
            LocalError: The path cannot be had.
        """
        self.used -= self.size(key)
        try:
            with _local_errors():
                self._make_place(key)
                self._draft.replace(self._path(key))
            self._etags[key] = etag
        finally:
            self.used += self.size(key)

    def remove(self, key: FileKey) -> None:
        """Remove a copy, and the folders that are empty without it."""
        self.used -= self.size(key)
        path, top = self._path(key), self._root / str(key.source)
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
            self._etags.pop(key, None)
        with contextlib.suppress(OSError):  # the first that is not empty ends it
            while (path := path.parent) != top:
                path.rmdir()
        self.used += self.size(key)

    def save(self, *, every_s: float = 0.0) -> None:
        """Keep the versions for the next attempt, unless that was done less than ``every_s`` ago."""
        if time.monotonic() - self._saved_at < every_s:
            return
        self._saved_at = time.monotonic()
        entries = [
            (key.source, key.path, etag, self.size(key))
            for key, etag in self._etags.items()
            if etag
        ]
        with contextlib.suppress(OSError):  # without it, more is read
            self._draft.write_text(json.dumps(entries))
            self._draft.replace(self._versions)

    def _load_etags(self) -> dict[FileKey, tuple[str, int]]:
        try:
            entries = json.loads(self._versions.read_text())
            return {FileKey(source, path): (etag, size) for source, path, etag, size in entries}
        except (OSError, ValueError, TypeError):
            return {}

    def _make_place(self, key: FileKey) -> None:
        path = self._path(key)
        if path.is_dir():
            path.rmdir()
        path.parent.mkdir(parents=True, exist_ok=True)

    def _path(self, key: FileKey) -> Path:
        return self._root / str(key.source) / key.path

    @property
    def _draft(self) -> Path:
        return self._root / "draft"

    @property
    def _versions(self) -> Path:
        return self._root / "versions.json"


class Draft:
    """A file that is being written.

    Attributes:
        size: Its bytes.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size = 0

    def write(self, content: bytes) -> None:
        """Add bytes.

        Raises:
            LocalError: The disk is full.
        """
        with _local_errors():
            self._file.write(content)
        self.size += len(content)

    def close(self) -> None:
        """Have all of it in the file.

        Raises:
            LocalError: The disk is full.
        """
        with _local_errors():
            self._file.close()


@contextlib.contextmanager
def _local_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LocalError from error
