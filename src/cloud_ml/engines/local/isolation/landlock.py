"""Fences that a process puts up around itself and its descendants: Landlock of the kernel, and
filtered calls.

They need neither namespaces nor root. Beside bubblewrap they close what a network that jobs share
leaves open:
sockets that have a name but no file. Without bubblewrap they are the fence: a job sees the files
that it was given and no others, cannot signal or trace what is outside, and has no capabilities.

References: landlock(7), linux/landlock.h, seccomp(2), capset(2).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import struct
from collections.abc import Iterable, Sequence

from cloud_ml.engines.local.isolation import etc

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # on every kind of machine
_ASK_VERSION, _PATH_BENEATH = 1, 1
_READ = 1 << 0 | 1 << 2 | 1 << 3  # execute, read a file, read a folder
_FILE = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15  # what a rule for a single file may grant
_FIRST_RIGHTS, _REFER, _TRUNCATE, _DEVICE_CONTROL = (1 << 13) - 1, 1 << 13, 1 << 14, 1 << 15
_DEVICE_NODES = 1 << 6 | 1 << 11
_TCP = 1 << 0 | 1 << 1
_ABSTRACT_SOCKETS, _SIGNALS = 1 << 0, 1 << 1
SCOPES_SINCE = 6
"""The version of Landlock that keeps signals and sockets without a file inside (Linux 6.12)."""

_SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/proc",
    "/sys/devices/system/cpu",
)
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm")
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def version() -> int:
    """Which version of Landlock this kernel has; 0 for none."""
    return max(0, int(_libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _ASK_VERSION)))


def keep_sockets_inside(landlock: int) -> None:
    """From here on neither this process nor a descendant reaches abstract sockets or processes of
    others.

    Mounting stays allowed, since bubblewrap is to follow.

    Args:
        landlock: The kernel's version; nothing happens below ``SCOPES_SINCE``.

    Raises:
        OSError: The kernel refuses it.
    """
    if landlock >= SCOPES_SINCE:
        _restrict(landlock, files=0, tcp=0, rules=())


def forbid_files(landlock: int) -> None:
    """From here on this process opens no file, reaches no network, and signals nobody outside.

    Args:
        landlock: The kernel's version.

    Raises:
        OSError: The kernel refuses it.
    """
    _restrict(landlock, files=_all_rights(landlock), tcp=_TCP if landlock >= 4 else 0, rules=())


def confine(
    landlock: int, *, readable: Sequence[str], writable: Sequence[str], network: bool
) -> None:
    """From here on this process and its descendants see these files and the system's harmless ones
    only.

    Args:
        landlock: The kernel's version.
        readable: Files and folders that may be read and executed. What is missing is left out.
        writable: Those that may be changed, too.
        network: Whether TCP may be used (without it, from version 4 on, neither to connect nor to
            listen).

    Raises:
        OSError: The kernel refuses it.
    """
    everything = _all_rights(landlock)
    devices = (f"/dev/{name}" for name in _DEVICES)
    harmless = (f"/etc/{name}" for name in etc.HARMLESS)
    rules = [
        *((path, _READ) for path in (*_SYSTEM, *harmless, *readable)),
        *((path, everything & ~_DEVICE_NODES) for path in (*devices, *writable)),
    ]
    _restrict(landlock, files=everything, tcp=0 if network or landlock < 4 else _TCP, rules=rules)


def _all_rights(landlock: int) -> int:
    everything = _FIRST_RIGHTS
    for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _DEVICE_CONTROL)):
        everything |= right if landlock >= since else 0
    return everything


def drop_capabilities() -> None:
    """Give up what makes root more than an owner of files; nothing executed later gets it back.

    Raises:
        OSError: The kernel refuses it.
    """
    _check(_libc.capset(struct.pack("=Ii", _CAPABILITY_VERSION_3, 0), bytes(24)))


def filter_calls(program: bytes) -> None:
    """Have the kernel run ``program`` (see ``seccomp``) before each system call of this process
    from here on.

    Raises:
        OSError: The kernel refuses it.
    """
    code = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _check(_libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, head, 0, 0))


def _restrict(landlock: int, *, files: int, tcp: int, rules: Iterable[tuple[str, int]]) -> None:
    scopes = _ABSTRACT_SOCKETS | _SIGNALS if landlock >= SCOPES_SINCE else 0
    # How much of the struct each version knows: files, since 4 TCP, since 6 scopes.
    known = 24 if landlock >= SCOPES_SINCE else 16 if landlock >= 4 else 8
    ruleset = _check(
        _libc.syscall(
            _CREATE_RULESET, struct.pack("=QQQ", files, tcp, scopes), ctypes.c_size_t(known), 0
        )
    )
    try:
        for path, rights in rules:
            # A path that cannot be opened gets no rule, so access to it stays forbidden.
            with contextlib.suppress(FileNotFoundError, PermissionError):
                _allow(ruleset, path, rights & files)
        # Without CAP_SYS_ADMIN, the kernel takes neither rules nor a filter before this is set.
        _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        _check(_libc.syscall(_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            # The kernel refuses rights of folders in a rule for a file.
            rights &= _FILE
        _check(
            _libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, place), 0)
        )
    finally:
        os.close(place)


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
