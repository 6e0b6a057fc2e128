"""Which jobs have changed the folders in which their event files and logs are."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import AbstractContextManager

from cloud_ml import linux

Place = tuple[AbstractContextManager[int | None], bool]
"""A folder that is opened, and whether files that grow in it are of interest, beside new names."""


class FileWatch:
    """Names each watched job once, and no more until it is watched again: so a job that writes all
    the time wakes the server once for each look. Safe to use from several threads.
    """

    def __init__(self) -> None:
        self._watch = linux.Watch()
        self._lock = threading.Lock()
        self._jobs: dict[int, set[str]] = {}
        """By the number of a folder's events: several jobs may share a folder."""
        self._numbers: dict[str, set[int]] = {}

    @property
    def descriptor(self) -> int:
        """Readable when ``changed`` has something to tell."""
        return self._watch.descriptor

    def watch(self, job_uid: str, places: Iterable[Place]) -> None:
        """Watch these folders, and no others, until something happens in one. Folders that are
        gone, and more than the kernel allows, are left out.
        """
        numbers = {self._watch_folder(job_uid, place) for place in places}
        with self._lock:
            before = self._numbers.pop(job_uid, set())
            for number in before - numbers:
                self._leave(number, job_uid)
            if before & numbers:
                self._numbers[job_uid] = before & numbers

    def forget(self, job_uid: str) -> None:
        """Watch a job no more."""
        with self._lock:
            for number in self._numbers.pop(job_uid, ()):
                self._leave(number, job_uid)

    def changed(self) -> set[str]:
        """The jobs in whose folders something has happened since the last call."""
        found = set()
        with self._lock:
            # After the single event, the kernel also reports that the watch was removed
            # (IN_IGNORED), under the same number.
            for number, _ in self._watch.events():
                for uid in self._jobs.pop(number, ()):
                    self._numbers.get(uid, set()).discard(number)
                    found.add(uid)
        return found

    def close(self) -> None:
        """Watch nothing more."""
        with self._lock:
            self._watch.close()

    def _watch_folder(self, job_uid: str, place: Place) -> int | None:
        """Watch a folder, which is open meanwhile and no longer."""
        opened, growth = place
        with opened as folder, self._lock:
            if folder is None:
                return None
            try:
                number = self._watch.folder_once(folder, growth=growth)
            except OSError:
                return None
            self._jobs.setdefault(number, set()).add(job_uid)
            self._numbers.setdefault(job_uid, set()).add(number)
            return number

    def _leave(self, number: int, job_uid: str) -> None:
        jobs = self._jobs.get(number, set())
        jobs.discard(job_uid)
        if not jobs:
            self._jobs.pop(number, None)
            self._watch.forget(number)
