"""A function of ours over a tenant's bytes, in a forked process that the tenant's limits and user
hold.

Reading an archive takes milliseconds, a new interpreter in a sandbox a tenth of a second. So the
supervisor forks:
the child keeps the modules that are loaded, and gives up everything else before it looks at the
first byte.
"""

from __future__ import annotations

import codecs
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from cloud_ml import linux
from cloud_ml.engines.local.cgroups import Group
from cloud_ml.engines.local.isolation import landlock
from cloud_ml.engines.local.processes.launch import Fence

MEMORY_BYTES = 256 * 2**20
"""Memory of the function beyond what the supervisor has; an archive of 100,000 members takes
about half of it.
"""
CPU_S = 120
"""Processor time: the 8 GiB that an archive may unpack to take about a minute."""
_FILE_BYTES = 8 * 2**30
_OPEN_FILES = 256
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PRELOADED_CODECS = ("cp437", "latin-1", "utf-8-sig", "utf-16", "utf-32", "idna")
"""Loaded before the fork: the child may not be able to read the files of the standard library."""


def available(fence: Fence) -> bool:
    """Whether this machine can confine a forked process as well as it confines a command."""
    return fence.landlock > 0 or not fence.bwrap


def run(
    fence: Fence,
    function: Callable[[], None],
    *,
    folder: Path,
    inputs: Sequence[int],
    group: Group | None,
    timeout_s: float,
    prepare: Callable[[], None] = lambda: None,
) -> int:
    """Run ``function`` in ``folder`` and return its exit code, negative for a signal; 1 if it
    raised.

    The child can write below ``folder`` and read the descriptors in ``inputs``; ``function`` uses
    relative paths. ``folder`` belongs to the tenant's user from here on. ``group`` is joined where
    one is given. No thread may be running. ``prepare`` is called in the child first, with the rights
    of the supervisor: it loads modules that the child may not be able to read afterwards.

    Raises:
        TimeoutError: It did not end within ``timeout_s`` seconds; it is gone.
        OSError: No process is to be had.
    """
    for name in _PRELOADED_CODECS:
        codecs.lookup(name)
    if fence.user is not None:
        os.chown(folder, *fence.user)
    pid = os.fork()
    if pid == 0:
        _become(fence, function, folder, inputs, group=group, prepare=prepare)
    pidfd = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        deadline = time.monotonic() + timeout_s
        while (left := deadline - time.monotonic()) > 0:
            if poll.poll(1000 * min(left, 60.0)):
                break
        else:
            raise TimeoutError(f"it did not end within {timeout_s:g} s")
    finally:
        os.kill(pid, signal.SIGKILL)  # harmless to one that has ended and was not waited for
        _, status = os.waitpid(pid, 0)
        os.close(pidfd)
    return os.waitstatus_to_exitcode(status)


def _become(
    fence: Fence,
    function: Callable[[], None],
    folder: Path,
    inputs: Sequence[int],
    *,
    group: Group | None,
    prepare: Callable[[], None],
) -> None:
    """In the child: give up what is not needed, run the function, and end. Never returns."""
    code = 1
    try:
        # The wakeup descriptor is the supervisor's socket: a signal to this process must not wake
        # the supervisor.
        signal.set_wakeup_fd(-1)
        for number in (
            signal.SIGTERM,
            signal.SIGALRM,
            signal.SIGINT,
            signal.SIGHUP,
            signal.SIGCHLD,
        ):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        prepare()
        if group is not None:
            # Join before changing the user: the server owns the group's files.
            group.join()
        os.chdir(folder)
        _close_all_but(inputs)
        os.umask(0o022)
        _limit()
        if fence.landlock:
            readable = (sys.base_prefix, sys.prefix, str(Path(__file__).parents[4]))
            landlock.confine(fence.landlock, readable=readable, writable=["."], network=False)
        if fence.user is not None:
            os.setgroups([])
            os.setresgid(fence.user[1], fence.user[1], fence.user[1])
            os.setresuid(fence.user[0], fence.user[0], fence.user[0])
        # Set this after changing the user, because the change clears it (prctl(2)).
        linux.die_with_parent(signal.SIGKILL)
        linux.forbid_new_privileges()
        landlock.drop_capabilities()
        if fence.filter:
            landlock.filter_calls(fence.filter)
        function()
        code = 0
    finally:
        os._exit(code)  # also where it raised: a forked child has nobody to raise to


def _close_all_but(inputs: Sequence[int]) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    kept = sorted({2, *inputs})
    for before, after in zip(kept, [*kept[1:], 1 << 20], strict=True):
        os.closerange(before + 1, after)


def _limit() -> None:
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123
        size = int(file.read().split()[0]) * _PAGE
    for kind, most in (
        # Address space, since the kernel does not enforce RLIMIT_RSS (getrlimit(2)). What is
        # mapped already counts.
        (resource.RLIMIT_AS, size + MEMORY_BYTES),
        (resource.RLIMIT_CPU, CPU_S),
        (resource.RLIMIT_FSIZE, _FILE_BYTES),
        (resource.RLIMIT_NOFILE, _OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (bound, bound))
