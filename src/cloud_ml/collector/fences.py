"""What the collector gives up before it reads the first byte of a tenant.

It keeps its memory, the line to the server, and descriptors that it is handed. It cannot open a
file, start a process, reach a network, or write anywhere but to its line.
"""

from __future__ import annotations

import os
import resource
import signal

from cloud_ml import linux
from cloud_ml.engines.local.isolation import landlock, seccomp

_MEMORY_BYTES = 256 * 2**20
"""Beyond what it has when it starts."""
_OPEN_FILES = 16
CPU_S = 5.0
"""Processor time of one request."""


def give_up_rights(user: int | None) -> None:
    """From here on this process can read what it is handed, answer, and nothing else.

    Args:
        user: The user to become, where the server is root.

    Raises:
        OSError: The kernel refuses it.
    """
    _limit()
    if user is not None:
        # As root still: a network namespace of its own takes CAP_SYS_ADMIN.
        linux.leave_network()
        # Groups before the user: afterwards they cannot be changed.
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    # Also what Landlock and seccomp ask of a process without CAP_SYS_ADMIN.
    linux.forbid_new_privileges()
    landlock.drop_capabilities()
    version = landlock.version()
    if version:
        landlock.forbid_files(version)
    # The filter comes last, since it forbids the calls of the lines before it.
    program = seccomp.reader_program()
    if program is not None:
        landlock.filter_calls(program)


def begin_request() -> None:
    """Give the request its processor time. When it is used up, the kernel ends this process."""
    # This timer counts processor time of the process and of the kernel for it. Nobody handles its
    # signal.
    signal.setitimer(signal.ITIMER_PROF, CPU_S)


def end_request() -> None:
    """Take back the rest of it."""
    signal.setitimer(signal.ITIMER_PROF, 0)


def _limit() -> None:
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123
        size = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    for kind, most in (
        (resource.RLIMIT_AS, size + _MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, _OPEN_FILES),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (bound, bound))
