"""The files to which tasks append their metrics, in the job's home directory.

They stay until the job is forgotten, so a server that was away misses nothing. All of it is the
job's to write: no link is followed, no pipe is waited for, holes are skipped, and each call reads a
bounded part of a file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cloud_ml import linux
from cloud_ml.engines.abilities import MetricData
from cloud_ml.engines.local.files.made_folders import make_folder, open_folder

FOLDER = ".cloudml_metrics"
VARIABLE = "CLOUDML_METRICS"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@dataclass(frozen=True)
class MetricFile:
    """The file of a task in an attempt."""

    attempt: int
    task: str

    @property
    def name(self) -> str:
        """Its name in the folder."""
        return f"{self.attempt}-{self.task}.jsonl"


def variables(home: str, attempt: int, task: str) -> dict[str, str]:
    """Where a task finds its file, as it sees its home directory."""
    return {VARIABLE: f"{home}/{FOLDER}/{MetricFile(attempt, task).name}"}


def make(home: Path, user: tuple[int, int] | None) -> None:
    """Make the folder of the files, for the ``user`` (uid, gid) of the job."""
    with open_folder(home) as parent, make_folder(FOLDER, parent, user):
        pass


@contextlib.contextmanager
def _opened_folder(home: Path) -> Iterator[int | None]:
    try:
        with open_folder(home) as parent:
            folder = os.open(FOLDER, _FOLDER, dir_fd=parent)
    except OSError:
        yield None
        return
    try:
        yield folder
    finally:
        os.close(folder)


def read(
    home: Path, file: MetricFile, identity: str, offset: int, *, most: int, end: int
) -> MetricData | None:
    """Read on from ``offset``, or from the beginning if the file is another one or was cut.

    Args:
        home: The home directory of the job.
        file: Which file.
        identity: That of the file that was read before.
        offset: How far it was read.
        most: Bytes to read.
        end: Nothing is read from here on.
    """
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(_opened_folder(home))
        if folder is None:
            return None
        try:
            descriptor = os.open(file.name, _FILE, dir_fd=folder)
            stack.callback(os.close, descriptor)
            return _read(descriptor, identity, offset, most=most, end=end)
        except OSError:
            return None


def _read(descriptor: int, identity: str, offset: int, *, most: int, end: int) -> MetricData | None:
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode):
        return None
    found = f"{facts.st_dev}:{facts.st_ino}"
    if found != identity or facts.st_size < offset:
        offset = 0
    begin = _after_hole(descriptor, offset)
    if begin is None:
        return MetricData(found, offset, b"", more=False, size=facts.st_size)
    data = os.pread(descriptor, min(most, max(0, end - begin)), begin)
    more = begin + len(data) < min(end, facts.st_size)
    return MetricData(found, begin, data, more=more, size=facts.st_size)


def _after_hole(descriptor: int, offset: int) -> int | None:
    """Where the next byte is that was written; ``None`` without one. A hole of terabytes costs
    nothing.
    """
    try:
        return os.lseek(descriptor, offset, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return None
        return offset  # the file system knows no holes


class MetricWatch:
    """Tells which jobs have reported, once for each time that one is watched. Belongs to one event
    loop, apart from ``watch``.
    """

    def __init__(self) -> None:
        self._watch = linux.Watch()
        self._jobs: dict[int, str] = {}
        self._numbers: dict[str, int] = {}

    @property
    def descriptor(self) -> int:
        """Readable when ``changed`` has something to tell."""
        return self._watch.descriptor

    def watch(self, home: Path, job_uid: str) -> None:
        """Watch a job until it reports the next time. One that has no folder is left alone."""
        with _opened_folder(home) as folder:
            if folder is None:
                return
            with contextlib.suppress(OSError):  # too many are watched: passes come with changes
                # Watch for one event only, so that a job that writes all the time wakes the
                # server once per read.
                number = self._watch.folder_once(folder)
                self._jobs[number], self._numbers[job_uid] = job_uid, number

    def forget(self, job_uid: str) -> None:
        """Watch a job no more."""
        if (number := self._numbers.pop(job_uid, None)) is not None:
            self._jobs.pop(number, None)
            self._watch.forget(number)

    def changed(self) -> set[str]:
        """The jobs that have reported since the last call."""
        # After the single event, the kernel also reports that the watch was removed (IN_IGNORED),
        # under the same number.
        found = {self._jobs.pop(number, "") for number, _ in self._watch.events()} - {""}
        for uid in found:
            self._numbers.pop(uid, None)
        return found

    def close(self) -> None:
        """Watch nothing more."""
        self._watch.close()
