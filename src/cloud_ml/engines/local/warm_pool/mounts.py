"""Folders shown to a sandbox that runs already, by the kernel's calls on descriptors of mounts
(Linux 5.12).

The sandbox belongs to a tenant, and so does everything that a path inside it leads through. So each
source is opened outside, by its name in our mount table, with its flags set before anybody sees it;
inside, folders are made and walked as the tenant's user, one at a time, and no link is followed.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass

_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442  # the same on every architecture
# OPEN_TREE_CLONE and OPEN_TREE_CLOEXEC; AT_RECURSIVE, AT_SYMLINK_NOFOLLOW and AT_EMPTY_PATH.
_CLONE, _CLOEXEC, _RECURSIVE, _NOFOLLOW, _EMPTY_PATH = 1, 0o2000000, 0x8000, 0x100, 0x1000
# MOVE_MOUNT_F_EMPTY_PATH and MOVE_MOUNT_T_EMPTY_PATH: source and target are descriptors.
_FROM_EMPTY, _TO_EMPTY = 0x4, 0x40
# MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID and MOUNT_ATTR_NODEV.
_RDONLY, _NOSUID, _NODEV = 1, 2, 4
_NEWNS, _NEWUTS = 0x00020000, 0x04000000
# AT_FDCWD.
_HERE = -100
# MNT_DETACH and UMOUNT_NOFOLLOW.
_DETACH, _NOT_A_LINK = 2, 8
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


@dataclass(frozen=True)
class Mount:
    """``source`` of this machine is to be seen at ``target``."""

    source: str
    target: str
    writable: bool


class _Attributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("user", ctypes.c_uint64),
    )


def show(
    inside: int,
    mounts: Sequence[Mount],
    *,
    instead: Sequence[str],
    user: tuple[int, int],
    hostname: str,
) -> None:
    """Mount all of it, in that order, for the sandbox of the process ``inside``, and close its top
    folder.

    What is mounted at the targets ``instead`` goes, so that nothing lies below what the job sees.

    Takes a process of its own, since a name in another mount table has to be looked up there.

    Raises:
        OSError: One of them cannot be shown; the sandbox must not be used then.
    """
    trees = [_open_tree(mount) for mount in mounts]
    process = os.pidfd_open(inside)
    receiver, sender = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        words = b""
        try:
            _enter(process, user, hostname)
            for target in instead:
                _leave(target)
            for tree, mount in zip(trees, mounts, strict=True):
                _move(tree, mount.target)
            # Make it read-only last: afterwards no mount point can be created.
            _set(_HERE, b"/", _RDONLY)
            words = b"ok"
        except BaseException as error:  # a forked child has nobody to raise to
            words = str(error).encode()[:1000] or b"?"
        finally:
            os.write(sender, words)
            os._exit(0)
    # Close the sender here, too: the read below ends only when no process has it open.
    for descriptor in (sender, process, *trees):
        os.close(descriptor)
    with os.fdopen(receiver, "rb") as reader:
        words = reader.read()
    os.waitpid(child, 0)
    if words != b"ok":
        raise OSError(
            "the job's folders cannot be shown to a sandbox that waits: "
            f"{words.decode('utf-8', 'replace')}"
        )


def _open_tree(mount: Mount) -> int:
    """A copy of what is mounted there, that is nowhere yet."""
    tree = _call(
        _OPEN_TREE, _HERE, os.fsencode(mount.source), _CLONE | _CLOEXEC | _RECURSIVE | _NOFOLLOW
    )
    _set(tree, b"", _NOSUID | _NODEV | (0 if mount.writable else _RDONLY), _EMPTY_PATH | _RECURSIVE)
    return tree


def _enter(process: int, user: tuple[int, int], hostname: str) -> None:
    if _libc.setns(process, _NEWNS | _NEWUTS):
        _fail()
    name = os.fsencode(hostname)[:64]
    if _libc.sethostname(name, len(name)):
        _fail()
    os.setgroups([])
    _libc.setfsgid(user[1])  # before the other: that takes the right to
    _libc.setfsuid(user[0])
    os.umask(0o022)


def _leave(target: str) -> None:
    if _libc.umount2(os.fsencode(target), _DETACH | _NOT_A_LINK):
        _fail()


def _move(tree: int, target: str) -> None:
    folder = os.open("/", _FOLDER)
    *above, last = target.strip("/").split("/")
    for name in above:
        folder = _step(folder, name)
    if stat.S_ISDIR(os.fstat(tree).st_mode):
        place = _step(folder, last)
    else:
        os.close(
            os.open(
                last, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder
            )
        )
        place = os.open(last, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    _call(_MOVE_MOUNT, tree, b"", place, b"", _FROM_EMPTY | _TO_EMPTY)


def _step(folder: int, name: str) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except FileNotFoundError:
        os.mkdir(name, 0o755, dir_fd=folder)
        return os.open(name, _FOLDER, dir_fd=folder)


def _set(where: int, name: bytes, flags: int, how: int = 0) -> None:
    attributes = _Attributes(flags, 0, 0, 0)
    _call(_MOUNT_SETATTR, where, name, how, ctypes.byref(attributes), ctypes.sizeof(attributes))


def _call(number: int, *arguments: object) -> int:
    words = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    result = int(_libc.syscall(ctypes.c_long(number), *words))
    if result < 0:
        _fail()
    return result


def _fail() -> None:
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number))
