"""Trainers as they were when the attempt started: copies by digest, out of reach of the tenant's
jobs.

Buckets are writable by jobs, so an engine is never handed a path into one: the object is read
through the object store's own rules and kept under its digest.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from cloud_ml import failpoints
from cloud_ml.engines.gang import TrainerSource
from cloud_ml.errors import NotFound, TooLarge
from cloud_ml.models.common import ObjectUri
from cloud_ml.objects.base import ObjectStore
from cloud_ml.settings import TrainerSettings

_BLOCK = 1 << 20
_KEPT_S = 7 * 86_400.0
_DRAFT_S = 3600.0
DRAFT_PREFIX = "tmp"
"""Of files that are being written, beside the folders of digests."""
_REMEMBERED = 4096
_DIGEST = re.compile("[0-9a-f]{64}")


class Packages:
    """A folder of ``<digest>/<file name>``. Blocking; safe to use from several threads.

    Args:
        objects: Where trainers are.
        folder: Where they are kept.
        size_limit: Largest one from a bucket, in bytes. A job can make a file of holes as large as
            it likes.
    """

    def __init__(self, objects: ObjectStore, folder: Path, *, size_limit: int = 2**31) -> None:
        self._objects = objects
        self._size_limit = size_limit
        self._folder = folder
        self._known: dict[tuple[str, str, str], str] = {}

    def fetch(self, uri: ObjectUri) -> TrainerSource:
        """The object, kept by its digest; a ``problem`` when there is none."""
        name = uri.key.rpartition("/")[2] or "trainer"
        absent = TrainerSource("", name, f"the trainer {uri} does not exist")
        try:
            info = self._objects.head(uri.bucket, uri.key)
            if info is None:
                return absent
            if info.size > self._size_limit:
                return self._too_large(uri, name)
            return TrainerSource(self._find(uri, name, info.etag), name)
        except TooLarge:  # since we looked
            return self._too_large(uri, name)
        except NotFound:
            return absent

    def from_file(self, path: PurePosixPath, settings: TrainerSettings) -> TrainerSource:
        """A file of this machine as it is now; a ``problem`` when it is not in a folder that is
        open to jobs.
        """
        absent = TrainerSource("", path.name, f"the trainer file://{path} does not exist")
        folders = [
            Path(folder.strip()).resolve()
            for folder in settings.folders.split(",")
            if folder.strip()
        ]
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return absent
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            return absent
        with os.fdopen(descriptor, "rb") as file:
            # Where it really lies is asked of what is open: links on the way may have led anywhere.
            really = Path(os.readlink(f"/proc/self/fd/{descriptor}"))  # noqa: PTH115 - a name that is no path
            if not any(really.is_relative_to(folder) for folder in folders):
                return absent
            if os.fstat(descriptor).st_size > (most := settings.url_size_limit_bytes):
                return TrainerSource(
                    "", path.name, f"the trainer file://{path} has more than {most} bytes"
                )
            return TrainerSource(
                self._store(iter(lambda: file.read(_BLOCK), b""), path.name), path.name
            )

    def file(self, digest: str, name: str) -> Path:
        """Where a file is kept, for an engine of this machine.

        Raises:
            NotFound: It is not kept here.
        """
        if _DIGEST.fullmatch(digest) and (path := self._folder / digest / name).is_file():
            return path
        raise NotFound(f"the file {name} is not kept on this server", field="trainer", value=name)

    def _find(self, uri: ObjectUri, name: str, etag: str) -> str:
        memory = (uri.bucket, uri.key, etag)
        digest = self._known.get(memory)
        if digest is None or not is_used_again(self._folder / digest / name):
            digest = self._copy(uri, name)
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[memory] = digest
        return digest

    def clear_leftovers(self) -> None:
        """Remove copies that a crash has cut off; nobody else uses the folder meanwhile."""
        with contextlib.suppress(OSError):  # there is none yet, or it can only be read
            for path in self._folder.iterdir():
                if not path.is_dir():
                    path.unlink()

    def prune(self) -> None:
        """Drop what was not used for a week; what is needed again is copied again.

        So are drafts that nobody has written to for an hour: a killed server left them.
        """
        oldest = time.time() - _KEPT_S
        self._drop_drafts(time.time() - _DRAFT_S)
        for path in self._folder.glob("*/*"):
            # Another caller removed it, too, or it was requested again.
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < oldest:
                    path.unlink()
                    path.parent.rmdir()

    def _drop_drafts(self, oldest: float) -> None:
        for path in self._folder.glob(f"{DRAFT_PREFIX}*"):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < oldest:
                    path.unlink()

    def _copy(self, uri: ObjectUri, name: str) -> str:
        info, chunks = self._objects.read(uri.bucket, uri.key)
        if info.size > self._size_limit:
            raise TooLarge(f"the trainer {uri} is too large")
        return self._store(chunks, name)

    def _too_large(self, uri: ObjectUri, name: str) -> TrainerSource:
        return TrainerSource("", name, f"the trainer {uri} has more than {self._size_limit} bytes")

    def _store(self, chunks: Iterable[bytes], name: str) -> str:
        """Keep a file; returns its digest."""
        self._folder.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        descriptor, draft = tempfile.mkstemp(dir=self._folder, prefix=DRAFT_PREFIX)
        try:
            with os.fdopen(descriptor, "wb") as file:
                for chunk in chunks:
                    digest.update(chunk)
                    file.write(chunk)
            # mkstemp makes files for their owner alone; the users of jobs read this one.
            os.chmod(draft, 0o644)  # noqa: PTH101 - the name is text
            target = self._folder / digest.hexdigest() / name
            target.parent.mkdir(exist_ok=True)
            failpoints.here("packages.place.before")
            # No fsync: only this process trusts its copies, and the next process copies again.
            os.replace(draft, target)  # noqa: PTH105
            failpoints.here("packages.place.after")
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
        return digest.hexdigest()


def is_used_again(path: Path) -> bool:
    """Whether the file is there; if so, the week until it may be removed begins anew."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True
