"""Notes what a job renames into the folder of its checkpoints, for code that reports nothing.

The notes are a file of the engine's in that folder: ``cloud_ml.job`` writes another one, of which
only the end is read. The folder is the job's: no link is followed, and nothing is written to a
file that is not the job's own.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from cloud_ml import linux
from cloud_ml.domain.workloads import checkpoints
from cloud_ml.engines.local.files.made_folders import open_folder

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NOTE = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PAUSE_S, _LONG_PAUSE_S = 0.2, 10.0
"""So long nothing is looked at after a look: a job may rename files without end."""
_MANY = 2000
"""After so many renames, the pauses are long."""
_MOST_NOTED = 10
"""So many of the newest renames are noted at each look."""
_MOST_READS = 100
"""The kernel keeps no more events than so many reads take (inotify(7), max_queued_events)."""
_NONE = -1
"""No folder is watched."""


class RenamedCheckpoints:
    """The folder of a gang's checkpoints, watched from before its first process to its end.

    Args:
        user: The uid and gid of the job's files; ``None`` for this process's own.
        attempt: The attempt that the notes name.
    """

    def __init__(self, user: tuple[int, int] | None, attempt: int) -> None:
        self._user = user
        self._attempt = attempt
        self._selector: selectors.BaseSelector | None = None
        self._watch: linux.Watch | None = None
        self._place: tuple[Path, Sequence[str]] = (Path(), ())
        self._number = _NONE
        self._event_count = 0
        self.due_at: float | None = None
        """When to ``resume``, by the monotonic clock; ``None`` while nothing keeps it waiting."""

    def start(
        self,
        selector: selectors.BaseSelector,
        folder: Path,
        below: Sequence[str],
        log: Callable[[bytes], None],
    ) -> None:
        """Watch from here on. Nothing is noted where the folder or the watch is not to be had.

        Args:
            selector: Tells when something was renamed.
            folder: The bucket's folder, which is the platform's.
            below: The path in it, through folders of the job.
            log: Takes a line for the job's log.
        """
        self._place = folder, below
        try:
            self._watch, self._number = _watch_for(self._user, self._place)
        except (FileNotFoundError, NotADirectoryError):  # the log says why it was not made
            return
        except OSError as error:
            full = error.errno in (errno.EMFILE, errno.ENOSPC)
            why = "the limits of fs.inotify are reached" if full else str(error)
            log(f"cloudml: checkpoints that are renamed will not be found: {why}\n".encode())
            return
        self._selector = selector
        self._listen()

    def look(self) -> None:
        """Note all that was renamed until now."""
        if self._watch is None:
            return
        renames: list[linux.Rename] = []
        for renamed in _all_renames(self._watch):
            if renamed.folder != self._number:  # an earlier folder's
                continue
            self._event_count += 1
            if not renamed.name:
                self._forget()
                renames.clear()
            else:
                renames.append(renamed)
        if finished := _newest_finished(renames):
            self._note(finished)
        if self._number == _NONE:
            self._watch_new_folder(self._watch)

    def resume(self, now: float) -> None:
        """Look again when the pause after the last look is over."""
        if self.due_at is not None and now >= self.due_at:
            self.due_at = None
            self._listen()
            if self._number == _NONE:  # nothing will tell that there is a folder again
                self._handle(None)

    def close(self) -> None:
        """Watch no more; the second time nothing happens."""
        if self._watch is not None:
            self._ignore()
            self._forget()
            for _ in _all_renames(self._watch):  # the next gang does not wait for these
                pass
            self._watch = None

    def _listen(self) -> None:
        if self._watch is not None and self._selector is not None:
            self._selector.register(
                self._watch.descriptor, selectors.EVENT_READ, (self._handle, None)
            )

    def _ignore(self) -> None:
        if self._watch is not None and self._selector is not None:
            with contextlib.suppress(KeyError):  # it is paused
                self._selector.unregister(self._watch.descriptor)

    def _handle(self, _: object) -> None:
        self.look()
        self._ignore()
        self.due_at = time.monotonic() + (_PAUSE_S if self._event_count < _MANY else _LONG_PAUSE_S)

    def _forget(self) -> None:
        if self._watch is not None and self._number != _NONE:
            self._watch.forget(self._number)
        self._number = _NONE

    def _watch_new_folder(self, watch: linux.Watch) -> None:
        """Watch the folder that the job has made in the place of the one that is gone, if it has."""
        self._event_count += 1
        with contextlib.suppress(OSError), _opened(self._place) as folder:
            self._number = watch.folder_of_renames(folder)

    def _note(self, names: Sequence[str]) -> None:
        now = time.time()
        lines = [checkpoints.line_of_rename(name, now, self._attempt) for name in names]
        # The disk is full, or the job has put a link there.
        with contextlib.suppress(OSError), _opened(self._place) as folder:
            file = os.open(checkpoints.RENAMED, _NOTE, 0o600, dir_fd=folder)
            try:
                if self._is_ours(os.fstat(file)):
                    if self._user is not None:
                        os.fchown(file, *self._user)
                    os.write(file, b"".join(lines))
            finally:
                os.close(file)

    def _is_ours(self, facts: os.stat_result) -> bool:
        """Whether it is a plain file with one name, and the job's or new."""
        owner = os.geteuid() if self._user is None else self._user[0]
        is_new = facts.st_uid == os.geteuid() and facts.st_size == 0
        is_plain = stat.S_ISREG(facts.st_mode) and facts.st_nlink == 1
        return is_plain and (facts.st_uid == owner or is_new)


_shared: list[tuple[tuple[int, int] | None, linux.Watch]] = []
"""The watch of this process, which serves one gang after another, and whom it counts against. To
close one takes ten milliseconds, and to forget a folder four microseconds.
"""


def _watch_for(
    user: tuple[int, int] | None, place: tuple[Path, Sequence[str]]
) -> tuple[linux.Watch, int]:
    """The watch that all gangs of this process have by turns, and the number of a folder's events.

    Raises:
        OSError: There is no such folder, or the user has as many watches as one may have
            (``fs.inotify.max_user_instances``, ``fs.inotify.max_user_watches``).
    """
    with _opened(place) as folder:
        if _shared:
            counted, watch = _shared[0]
            try:
                return watch, watch.folder_of_renames(folder)
            except OSError:
                if counted == user:
                    raise
            # The user of an earlier gang watches as much as one may: that is not this one's fault.
            _shared.clear()
            watch.close()
        with _as_user(user):
            watch = linux.Watch()
        _shared.append((user, watch))
        return watch, watch.folder_of_renames(folder)


def _newest_finished(renames: Sequence[linux.Rename]) -> list[str]:
    """The names that were given last to checkpoints that are complete; the newest last."""
    found: dict[str, None] = {}
    for one in reversed(renames):  # most of many are not looked at
        if len(found) == _MOST_NOTED:
            break
        if one.name not in found and checkpoints.is_finished(one.source, one.name):
            found[one.name] = None
    return [*found][::-1]


def _all_renames(watch: linux.Watch) -> Iterator[linux.Rename]:
    for _ in range(_MOST_READS):
        if not (found := watch.renames()):
            return
        yield from found


@contextlib.contextmanager
def _as_user(user: tuple[int, int] | None) -> Iterator[None]:
    """Have the kernel count against the job's user what is opened meanwhile. Root's own are few,
    and the system needs them.
    """
    before = os.geteuid()
    try:
        # Inside: the handler of a signal may raise as soon as the call returns.
        if user is not None:
            os.seteuid(user[0])
        yield
    finally:
        if user is not None:
            os.seteuid(before)


@contextlib.contextmanager
def _opened(place: tuple[Path, Sequence[str]]) -> Iterator[int]:
    """A folder of the job, as a descriptor. It is not kept: the kernel tells that a folder was
    removed when nobody has it open any more.
    """
    folder, below = place
    with contextlib.ExitStack() as stack:
        descriptor = stack.enter_context(open_folder(folder))
        for name in below:
            descriptor = os.open(name, _FOLDER, dir_fd=descriptor)
            stack.callback(os.close, descriptor)
        yield descriptor
