"""The few kernel calls that the standard library lacks, by ctypes. Numbers are from the kernel's
headers.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38
_CLONE_NEWNS, _CLONE_NEWNET = 0x00020000, 0x40000000
_MNT_DETACH = 0x2
_MS_BIND, _MS_REC, _MS_SLAVE = 0x1000, 0x4000, 0x80000
_IN_MODIFY, _IN_MOVED_FROM, _IN_MOVED_TO, _IN_CREATE = 0x2, 0x40, 0x80, 0x100
_IN_MOVE_SELF, _IN_IGNORED = 0x800, 0x8000
_IN_CLOEXEC, _IN_NONBLOCK = 0o2000000, 0o4000
_IN_ONLYDIR, _IN_MASK_ADD, _IN_ONESHOT = 0x01000000, 0x20000000, 0x80000000
_EVENT_BYTES = 16  # of ``struct inotify_event``, before the name

_AT_FDCWD, _AT_SYMLINK_NOFOLLOW, _STATX_BTIME = -100, 0x100, 0x800
_STATX_BYTES, _STATX_BIRTH = 256, 80  # of ``struct statx``, and where the time of birth is in it

_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(signal: int) -> None:
    """Have the kernel send ``signal`` to this process when its parent dies."""
    # The parent is the thread that has forked this process, and a change of user clears this
    # (prctl(2)).
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal, 0, 0, 0))


def become_subreaper() -> None:
    """Become the parent of descendants whose own parent dies, daemons included."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))


def forbid_new_privileges() -> None:
    """No program that this process executes can gain privileges any more."""
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def leave_mount_namespace() -> None:
    """Give this process a mount table of its own that follows the machine's, not the other way
    round.

    Raises:
        OSError: Not permitted.
    """
    _check(_libc.unshare(_CLONE_NEWNS))
    _check(_libc.mount(None, b"/", None, _MS_REC | _MS_SLAVE, None))


def mount_tmpfs(target: Path) -> None:
    """Mount a small empty file system.

    Raises:
        OSError: Not permitted.
    """
    _check(_libc.mount(b"tmpfs", os.fsencode(target), b"tmpfs", 0, b"size=1m,mode=711"))


def bind_mount(source: Path, target: Path) -> None:
    """Show ``source`` at ``target`` as well.

    Raises:
        OSError: Not permitted, or one of them does not exist.
    """
    _check(_libc.mount(os.fsencode(source), os.fsencode(target), None, _MS_BIND | _MS_REC, None))


def birth_time_ns(path: str) -> int:
    """When the file was made; 0 where the file system or the C library does not tell.

    Raises:
        OSError: It cannot be seen.
    """
    if not hasattr(_libc, "statx"):  # glibc before 2.28
        return 0
    facts = ctypes.create_string_buffer(_STATX_BYTES)
    name = os.fsencode(path)
    _check(_libc.statx(_AT_FDCWD, name, _AT_SYMLINK_NOFOLLOW, _STATX_BTIME, facts))
    # The mask tells which fields the file system has filled in.
    if not struct.unpack_from("=I", facts)[0] & _STATX_BTIME:
        return 0
    seconds, nanoseconds = struct.unpack_from("=qI", facts, _STATX_BIRTH)
    return int(seconds * 1_000_000_000 + nanoseconds)


def leave_network() -> None:
    """Give this process a network of its own, with nothing in it but a loopback that is off.

    Raises:
        OSError: Not permitted.
    """
    _check(_libc.unshare(_CLONE_NEWNET))


def enter_network(descriptor: int) -> None:
    """Move this process into the network of that descriptor.

    Raises:
        OSError: Not permitted, or it is no network.
    """
    _check(_libc.setns(descriptor, _CLONE_NEWNET))


def unmount(target: Path) -> None:
    """Take away what is mounted at ``target``, as soon as nobody uses it any more.

    Raises:
        OSError: Nothing is mounted there, or not permitted.
    """
    _check(_libc.umount2(os.fsencode(target), _MNT_DETACH))


class Rename(NamedTuple):
    """Something in a watched folder has another name. ``source`` is the one that it had there, and
    empty for what came from another folder. ``folder`` is the number of the folder's events.

    Without a ``name``, the folder itself was removed or has another name.
    """

    folder: int
    source: str
    name: str


class Watch:
    """Tells by a readable descriptor that something moved into a folder, or that a file grew
    (inotify(7)).
    """

    def __init__(self) -> None:
        self.descriptor = _check(_libc.inotify_init1(_IN_CLOEXEC | _IN_NONBLOCK))
        self._left: dict[int, str] = {}  # names that were given up, by their cookie

    def folder(self, path: Path) -> int:
        """Watch for files that appear in ``path`` or grow there; returns the number of this
        folder's events.
        """
        mask = _IN_MOVED_TO | _IN_CREATE | _IN_MODIFY
        return _check(_libc.inotify_add_watch(self.descriptor, os.fsencode(path), mask))

    def arrivals(self, path: Path) -> int:
        """Watch only for files that are renamed into ``path``."""
        # Drafts are created and written in the same folder, so watch only for renames.
        return _check(_libc.inotify_add_watch(self.descriptor, os.fsencode(path), _IN_MOVED_TO))

    def folder_once(self, descriptor: int, *, growth: bool = True) -> int:
        """Watch an open folder for the next name that appears in it, or file that grows, and no
        more then. A folder that is watched already keeps what it was watched for.
        """
        mask = _IN_CREATE | _IN_MOVED_TO | _IN_ONESHOT | _IN_MASK_ADD
        mask |= _IN_MODIFY if growth else 0
        # inotify takes a path only. This one leads to the open folder, whatever its name is by
        # now.
        path = f"/proc/self/fd/{descriptor}".encode()
        return _check(_libc.inotify_add_watch(self.descriptor, path, mask))

    def folder_of_renames(self, descriptor: int) -> int:
        """Watch an open folder for what gets another name in it, or comes from another folder.

        The kernel tells that it was removed when nobody has it open any more.
        """
        mask = _IN_MOVED_FROM | _IN_MOVED_TO | _IN_MOVE_SELF | _IN_ONLYDIR
        path = f"/proc/self/fd/{descriptor}".encode()
        return _check(_libc.inotify_add_watch(self.descriptor, path, mask))

    def forget(self, number: int) -> None:
        """Watch a folder no more; harmless when it is gone."""
        _libc.inotify_rm_watch(self.descriptor, number)

    def names(self) -> list[str]:
        """Names of the files concerned since the last call; empty when nothing happened."""
        return [name for _, name in self.events()]

    def events(self) -> list[tuple[int, str]]:
        """The same, each behind the number of its folder."""
        return [(number, name) for number, _, _, name in self._read()]

    def renames(self) -> list[Rename]:
        """What got another name since the last call, in ``folder_of_renames``; empty when nothing
        happened.
        """
        found, left = [], self._left
        self._left = {}
        for number, mask, cookie, name in self._read():
            if mask & _IN_MOVED_FROM:
                self._left[cookie] = name
            elif mask & _IN_MOVED_TO:
                # The two events of a rename follow each other, and may come with two calls.
                source = self._left.pop(cookie, "") or left.pop(cookie, "")
                found.append(Rename(number, source, name))
            elif mask & (_IN_MOVE_SELF | _IN_IGNORED):
                found.append(Rename(number, "", ""))
        return found

    def _read(self) -> Iterator[tuple[int, int, int, str]]:
        """Folder, mask, cookie and name of each event since the last call."""
        try:
            # The kernel returns whole events only (inotify(7)).
            data = os.read(self.descriptor, 65_536)
        except BlockingIOError:
            return
        at = 0
        while at < len(data):
            number, mask, cookie, length = struct.unpack_from("=iIII", data, at)
            at += _EVENT_BYTES
            yield number, mask, cookie, os.fsdecode(data[at : at + length].rstrip(b"\0"))
            at += length

    def close(self) -> None:
        """Stop watching. May be called again: its number may be another file's by then."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
