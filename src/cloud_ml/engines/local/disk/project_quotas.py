"""Project quotas of XFS and ext4: the kernel itself refuses the first byte beyond a disk limit.

A folder has the ID of a project, its new files inherit it, and the kernel counts and bounds what a
project takes. ``quotactl_fd`` (Linux 5.14) needs no path of a device. Both file systems take its
generic commands. Reference: quotactl(2), linux/fs.h (``fsxattr``), linux/quota.h (``if_dqblk``),
linux/dqblk_xfs.h (``fs_quota_stat``).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

GET_XATTR, SET_XATTR = 0x801C581F, 0x401C5820
"""``FS_IOC_FSGETXATTR`` and ``FS_IOC_FSSETXATTR``."""
INHERIT = 0x200
"""``FS_XFLAG_PROJINHERIT``."""
XATTR = struct.Struct("=5I8x")
"""``fsxattr``: flags, extsize, nextents, project, cowextsize, padding."""
QUOTA = struct.Struct("=8QI4x")
"""``if_dqblk``: block limits (hard, soft; KiB), bytes used, inode limits (hard, soft), inodes used,
times, valid.
"""
# Newer system calls have the same number on x86-64 and arm64.
_QUOTACTL_FD = 443
# Q_GETQUOTA, Q_SETQUOTA and Q_XGETQSTAT. The last one comes from XFS, and ext4 supports it, too.
_GET_QUOTA, _SET_QUOTA, _GET_STATE = 0x800007, 0x800008, 0x5805
# PRJQUOTA.
_PROJECT = 2
# QIF_BLIMITS and QIF_ILIMITS: the kernel takes only the limits from the struct.
_LIMITS_VALID = 1 | 4
_BLOCK_UNIT = 1024
_STATE_SIZE, _FLAGS_AT = 256, 2
# FS_QUOTA_PDQ_ACCT and FS_QUOTA_PDQ_ENFD. Without the second flag the kernel counts, but does not
# enforce limits.
_ACCOUNTED, _ENFORCED = 1 << 4, 1 << 5
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class ProjectQuota:
    """What a project may take and takes, in bytes and inodes; a limit of 0 is none."""

    limit: int
    used: int
    most_files: int
    files: int


def enforced_on(folder: Path) -> bool:
    """Whether the file system of ``folder`` holds projects to their limits.

    Raises:
        OSError: The kernel or the file system has no project quotas.
    """
    with _open_folder(folder) as descriptor:
        state = _quotactl(descriptor, _GET_STATE, 0, bytes([1]).ljust(_STATE_SIZE, b"\0"))
    (flags,) = struct.unpack_from("=H", state, _FLAGS_AT)
    return bool(flags & _ACCOUNTED and flags & _ENFORCED)


def project_of(folder: Path) -> int:
    """The project of a folder; 0 for none.

    Raises:
        OSError: There is no such folder, or its file system has no projects.
    """
    with _open_folder(folder) as descriptor:
        return int(XATTR.unpack(_attributes(descriptor))[3])


def assign(folder: Path, project: int) -> None:
    """Put a folder and what is made in it from now on into a project; 0 takes it out of any.

    Raises:
        OSError: The file system has no projects, or this process may not do that.
    """
    with _open_folder(folder) as descriptor:
        flags, size, extents, _, copied = XATTR.unpack(_attributes(descriptor))
        flags = flags | INHERIT if project else flags & ~INHERIT
        fcntl.ioctl(descriptor, SET_XATTR, XATTR.pack(flags, size, extents, project, copied))


def share_project(other: Path, folder: Path) -> None:
    """Put ``folder`` into the project of the ``other``, if that has one."""
    with contextlib.suppress(OSError):
        if project := project_of(other):
            assign(folder, project)


def set_limit(folder: Path, project: int, size: int, files: int = 0) -> None:
    """Bound what a project takes on the file system of ``folder``; 0 is no limit.

    Raises:
        OSError: As ``enforced_on``, or this process may not do that.
    """
    blocks = -(-size // _BLOCK_UNIT)
    with _open_folder(folder) as descriptor:
        _quotactl(
            descriptor,
            _SET_QUOTA,
            project,
            QUOTA.pack(blocks, 0, 0, files, 0, 0, 0, 0, _LIMITS_VALID),
        )


def quota_of(folder: Path, project: int) -> ProjectQuota:
    """The limit and the use of a project on the file system of ``folder``.

    Raises:
        OSError: As ``enforced_on``.
    """
    with _open_folder(folder) as descriptor:
        try:
            answer = _quotactl(descriptor, _GET_QUOTA, project, bytes(QUOTA.size))
        except OSError as error:
            if error.errno != errno.ENOENT:  # XFS knows nothing of a project without a file
                raise
            return ProjectQuota(0, 0, 0, 0)
    hard, _, used, most_files, _, files, *_ = QUOTA.unpack(answer)
    return ProjectQuota(hard * _BLOCK_UNIT, used, most_files, files)


def _attributes(descriptor: int) -> bytes:
    return bytes(fcntl.ioctl(descriptor, GET_XATTR, bytes(XATTR.size)))


def _quotactl(descriptor: int, command: int, project: int, argument: bytes) -> bytes:
    buffer = ctypes.create_string_buffer(argument, len(argument))
    done = _libc.syscall(_QUOTACTL_FD, descriptor, command << 8 | _PROJECT, project, buffer)
    if done != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return buffer.raw


@contextlib.contextmanager
def _open_folder(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, _FOLDER)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
