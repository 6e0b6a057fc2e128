"""Starting one command: fork, join the limits, become the tenant, exec. No thread may be running."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from cloud_ml.engines.local import linux, sandbox, seccomp
from cloud_ml.engines.local.cgroups import Group
from cloud_ml.engines.local.sandbox import View


@dataclass(frozen=True)
class Fence:
    """What stands around commands of a tenant. Without ``bwrap`` they run in the machine as it is."""

    bwrap: str
    filter: bytes | None
    user: tuple[int, int] | None


@dataclass
class Launched:
    """A command that runs. ``output`` and ``status`` are readable descriptors, ``status`` only with bwrap."""

    pid: int
    pidfd: int
    output: int
    status: int | None

    def close(self) -> None:
        """Let go of the descriptors."""
        for descriptor in (self.pidfd, self.output, self.status):
            if descriptor is not None:
                with contextlib.suppress(OSError):
                    os.close(descriptor)


@dataclass(frozen=True)
class Exit:
    """How a command ended: an exit code or a signal; ``started`` is false if the fence could not be put up."""

    code: int | None
    signal: int | None = None
    started: bool = True

    @property
    def good(self) -> bool:
        """Whether it ended with code 0."""
        return self.code == 0


def launch(
    fence: Fence, view: View, command: Sequence[str], environment: Mapping[str, str], group: Group | None
) -> Launched:
    """Start ``command``; its output comes through ``Launched.output``.

    Raises:
        OSError: No process or descriptor is to be had.
    """
    output_read, output_write = os.pipe2(os.O_CLOEXEC)
    status_read = status_write = filter_fd = None
    line = list(command)
    if fence.bwrap:
        status_read, status_write = os.pipe2(os.O_CLOEXEC)
        filter_fd = _memory_file(fence.filter) if fence.filter else None
        line = sandbox.command_line(fence.bwrap, view, command, seccomp_fd=filter_fd, status_fd=status_write)
    pid = os.fork()
    if pid == 0:
        _become(fence, view, line, environment, group, output_write, [status_write, filter_fd])
    for descriptor in (output_write, status_write, filter_fd):
        if descriptor is not None:
            os.close(descriptor)
    os.set_blocking(output_read, False)
    return Launched(pid, os.pidfd_open(pid), output_read, status_read)


def _become(  # noqa: PLR0917
    fence: Fence,
    view: View,
    line: list[str],
    environment: Mapping[str, str],
    group: Group | None,
    output: int,
    kept: Sequence[int | None],
) -> NoReturn:
    """Turn the forked child into the command."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        if group is not None:
            group.join()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        for descriptor in kept:
            if descriptor is not None:
                os.set_inheritable(descriptor, True)
        os.umask(0o022)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if not fence.bwrap:
            os.chdir(view.folder)
            linux.forbid_new_privileges()
        if fence.user is not None:
            os.setgroups([])
            os.setresgid(fence.user[1], fence.user[1], fence.user[1])
            os.setresuid(fence.user[0], fence.user[0], fence.user[0])
        if fence.bwrap:
            os.chdir("/")
        linux.die_with_parent(signal.SIGKILL)  # after the change of user, which clears it
        os.execvpe(line[0], line, dict(environment))  # noqa: S606
    except BaseException as error:  # a forked child has nobody to raise to
        os.write(2, f"cloudml: {line[0]} cannot be started: {error}\n".encode())
    finally:
        sys.stderr.close()
        os._exit(127)


def wait(launched: Launched) -> Exit:
    """Collect a command that has ended (its ``pidfd`` is readable)."""
    _, status = os.waitpid(launched.pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if launched.status is None:
        return Exit(code, None) if code >= 0 else Exit(None, -code)
    inside = _inner_exit_code(launched.status)
    if code < 0:
        return Exit(None, -code)
    if inside is None:
        return Exit(code, started=False)
    # bubblewrap's init answers like a shell: 128 + n for signal n
    return Exit(None, inside - 128) if 128 < inside <= 128 + signal.NSIG else Exit(inside)


def _inner_exit_code(descriptor: int) -> int | None:
    os.set_blocking(descriptor, False)
    data = b""
    with contextlib.suppress(BlockingIOError):
        while chunk := os.read(descriptor, 4096):
            data += chunk
    for text in data.splitlines():
        with contextlib.suppress(ValueError):
            if (code := json.loads(text).get("exit-code")) is not None:
                return int(code)
    return None


def _memory_file(content: bytes) -> int:
    descriptor = os.memfd_create("filter")
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def tenant_fence(bwrap: str, *, filtered: bool, user: tuple[int, int] | None) -> Fence:
    """The fence for a tenant's commands."""
    return Fence(bwrap, seccomp.program() if filtered and bwrap else None, user)
