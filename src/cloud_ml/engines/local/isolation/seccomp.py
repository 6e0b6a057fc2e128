"""The system-call filter of jobs, as a classic BPF program for bubblewrap's ``--seccomp``.

A deny list: training code uses half the kernel, so what is refused is what reaches the machine or
other tenants (mounting, modules, tracing, keys, namespaces, io_uring, …). Refused calls answer
EPERM, ``clone3`` answers ENOSYS so that the C library falls back to ``clone``, whose flags can be
read. ``fallocate`` answers EOPNOTSUPP, as on many file systems: it takes gigabytes in a
millisecond, before anybody could see that a limit of the disk is passed. The C library writes zeros
instead. Reference: seccomp(2), linux/audit.h; numbers from the kernel's syscall tables.
"""

from __future__ import annotations

import functools
import platform
import struct
from collections.abc import Mapping

_LOAD, _JUMP, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _JUMP_SET, _RETURN = (
    0x20, 0x05, 0x15, 0x35, 0x45, 0x06,
)  # fmt: skip
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_EPERM, _ENOSYS, _EOPNOTSUPP = 0x00050000 | 1, 0x00050000 | 38, 0x00050000 | 95
_NUMBER, _ARCHITECTURE = 0, 4
_NAMESPACE_FLAGS = 0x7E020080  # CLONE_NEW{USER,PID,NET,IPC,UTS,CGROUP,NS,TIME}
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_FS_IOC_FSSETXATTR = 0x401C5820
"""Moves a file to another project of the file system, whose limit is not the job's."""
_SOCKETS = (0, 1, 2, 10)
"""Kinds that programs open: none, local ones, IPv4, IPv6. What else there is, is seldom used and
seldom looked at.
"""
_AF_NETLINK, _NETLINKS = 16, (0, 20)
"""Questions to the kernel: of those only the ones about addresses and routes, and about RDMA."""

# name: (x86_64, aarch64); -1 where the machine has no such call
_DENIED: Mapping[str, tuple[int, int]] = {
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440),
    "unshare": (272, 97),
    "setns": (308, 268),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "create_module": (174, -1),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "lookup_dcookie": (212, 18),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "iopl": (172, -1),
    "ioperm": (173, -1),
    "modify_ldt": (154, -1),
    "uselib": (134, -1),
    "nfsservctl": (180, 42),
    "fanotify_init": (300, 262),
    "mknod": (133, -1),
    "personality": (135, 92),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    "vmsplice": (278, 75),
    "file_setattr": (469, 469),
}
_OF_READERS: Mapping[str, tuple[int, int]] = {
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "fstat": (5, 80),
    "newfstatat": (262, 79),
    "lseek": (8, 62),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "munmap": (11, 215),
    "brk": (12, 214),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "pread64": (17, 67),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "restart_syscall": (219, 128),
    "setitimer": (38, 103),
    "sendto": (44, 206),
    "recvfrom": (45, 207),
    "sendmsg": (46, 211),
    "recvmsg": (47, 212),
    "futex": (202, 98),
    "clock_gettime": (228, 113),
    "getrandom": (318, 278),
    "getpid": (39, 172),
    "exit": (60, 93),
    "exit_group": (231, 94),
}
_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_CLONE = (56, 220)
_FALLOCATE = (285, 47)
_CLONE3 = (435, 435)
_IOCTL = (16, 29)
_SOCKET = (41, 198)
_MKNODAT = (259, 33)
_PRLIMIT = (302, 261)
_X32_BIT = 0x40000000
_S_IFMT, _S_IFCHR, _S_IFBLK = 0o170000, 0o020000, 0o060000


@functools.cache
def program(machine: str | None = None) -> bytes | None:
    """The filter for ``machine`` (this one by default), or ``None`` for one without a table."""
    entry = _MACHINES.get(machine or platform.machine())
    if entry is None:
        return None
    architecture, column = entry
    code = [
        # On another architecture the same numbers mean other calls. Calls of x32 have the numbers
        # of x86_64 with one bit more. Either would pass the checks below.
        _op(_LOAD, _ARCHITECTURE),
        _op(_JUMP_EQUAL, architecture, 1, 0),
        _op(_RETURN, _KILL),
        _op(_LOAD, _NUMBER),
        _op(_JUMP_GREATER_EQUAL, _X32_BIT, 0, 1),
        _op(_RETURN, _KILL),
    ]
    for numbers in _DENIED.values():
        if numbers[column] >= 0:
            code += [_op(_JUMP_EQUAL, numbers[column], 0, 1), _op(_RETURN, _EPERM)]
    code += [_op(_JUMP_EQUAL, _CLONE3[column], 0, 1), _op(_RETURN, _ENOSYS)]
    code += [_op(_JUMP_EQUAL, _FALLOCATE[column], 0, 1), _op(_RETURN, _EOPNOTSUPP)]
    code += _when_flags(_CLONE[column], argument=0, flags=_NAMESPACE_FLAGS)
    code += _when_equal(
        _IOCTL[column], argument=1, values=(_TIOCSTI, _TIOCLINUX, _FS_IOC_FSSETXATTR)
    )
    code += _socket(_SOCKET[column])
    code += _unless_zero(_PRLIMIT[column], argument=0)
    code += _when_mode(_MKNODAT[column], argument=2)
    code.append(_op(_RETURN, _ALLOW))
    return b"".join(code)


@functools.cache
def reader_program(machine: str | None = None) -> bytes | None:
    """The filter of a process that reads descriptors which it is handed, and answers: a list of what
    is allowed. ``None`` for a machine without a table.
    """
    entry = _MACHINES.get(machine or platform.machine())
    if entry is None:
        return None
    architecture, column = entry
    code = [
        _op(_LOAD, _ARCHITECTURE),
        _op(_JUMP_EQUAL, architecture, 1, 0),
        _op(_RETURN, _KILL),
        _op(_LOAD, _NUMBER),
    ]
    # No check for x32 is needed: with the x32 bit set, a number is in no list of allowed calls.
    for numbers in _OF_READERS.values():
        code += [_op(_JUMP_EQUAL, numbers[column], 0, 1), _op(_RETURN, _ALLOW)]
    code.append(_op(_RETURN, _EPERM))
    return b"".join(code)


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _argument(index: int) -> int:
    # The kernel takes the arguments that are checked here as 32-bit values, so nothing can hide
    # in the high half.
    return 16 + 8 * index  # the low half: both machines are little-endian


def _when_flags(number: int, *, argument: int, flags: int) -> list[bytes]:
    return [
        _op(_JUMP_EQUAL, number, 0, 4),
        _op(_LOAD, _argument(argument)),
        _op(_JUMP_SET, flags, 0, 1),
        _op(_RETURN, _EPERM),
        _op(_LOAD, _NUMBER),
    ]


def _when_equal(number: int, *, argument: int, values: tuple[int, ...]) -> list[bytes]:
    checks = [
        step for value in values for step in (_op(_JUMP_EQUAL, value, 0, 1), _op(_RETURN, _EPERM))
    ]
    return [
        _op(_JUMP_EQUAL, number, 0, len(checks) + 2),
        _op(_LOAD, _argument(argument)),
        *checks,
        _op(_LOAD, _NUMBER),
    ]


def _socket(number: int) -> list[bytes]:
    plain = [_op(_JUMP_EQUAL, kind, 0, 1) for kind in _SOCKETS]
    steps = [step for check in plain for step in (check, b"")] + [
        _op(_JUMP_EQUAL, _AF_NETLINK, 1, 0)
    ]
    steps += [_op(_RETURN, _EPERM), _op(_LOAD, _argument(2))]
    steps += [step for kind in _NETLINKS for step in (_op(_JUMP_EQUAL, kind, 0, 1), b"")] + [
        _op(_RETURN, _EPERM)
    ]
    # an empty step is a jump to the end, where the number is loaded again
    steps = [step or _op(_JUMP, len(steps) - at - 1) for at, step in enumerate(steps)]
    return [
        _op(_JUMP_EQUAL, number, 0, len(steps) + 2),
        _op(_LOAD, _argument(0)),
        *steps,
        _op(_LOAD, _NUMBER),
    ]


def _unless_zero(number: int, *, argument: int) -> list[bytes]:
    """Refuse a process id: 0 is the caller itself."""
    return [
        _op(_JUMP_EQUAL, number, 0, 4),
        _op(_LOAD, _argument(argument)),
        _op(_JUMP_EQUAL, 0, 1, 0),
        _op(_RETURN, _EPERM),
        _op(_LOAD, _NUMBER),
    ]


def _when_mode(number: int, *, argument: int) -> list[bytes]:
    """Refuse making device nodes; FIFOs and plain files are the job's own business."""
    return [
        _op(_JUMP_EQUAL, number, 0, 7),
        _op(_LOAD, _argument(argument)),
        _op(0x54, _S_IFMT),  # and
        _op(_JUMP_EQUAL, _S_IFCHR, 0, 1),
        _op(_RETURN, _EPERM),
        _op(_JUMP_EQUAL, _S_IFBLK, 0, 1),
        _op(_RETURN, _EPERM),
        _op(_LOAD, _NUMBER),
    ]
