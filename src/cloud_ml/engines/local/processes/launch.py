"""Starting one command: fork, join the limits, become the tenant, exec. No thread may be
running.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from cloud_ml import linux
from cloud_ml.engines.local import init
from cloud_ml.engines.local.cgroups import Group
from cloud_ml.engines.local.config import LocalConfig
from cloud_ml.engines.local.isolation import landlock, sandbox, seccomp
from cloud_ml.engines.local.isolation.sandbox import View
from cloud_ml.engines.local.network import JOB_PORT, NONE

GANG = "CLOUDML_GANG"
"""The variable that says of which attempt a process is."""


@dataclass(frozen=True)
class Fence:
    """What stands around commands of a tenant. Without ``bwrap`` they run in the machine as it is.

    ``init`` is the program that is the first process inside; empty for bubblewrap's own. ``seat``
    is the program that waits to become the command; empty for a fork of this process. ``landlock``
    is the kernel's version of it:
    beside ``bwrap`` a small part of the fence, without it the fence itself; 0 for neither.
    ``port`` is where the first process inside listens for callers of the server; 0 for nowhere.
    """

    bwrap: str
    init: str
    seat: str
    filter: bytes | None
    user: tuple[int, int] | None
    landlock: int = 0
    port: int = 0


@dataclass
class Launched:
    """A command that runs. ``output`` and ``status`` are readable descriptors, ``status`` only with
    bwrap.

    ``status_from_init`` says that ``status`` will carry the wait status as our own init tells it.
    ``network`` is what the command's process finds its network by. ``channel`` is where its first
    process sends the socket on which it listens.
    """

    pid: int
    pidfd: int
    output: int
    status: int | None
    status_from_init: bool = False
    network: int | None = None
    channel: int | None = None

    @property
    def ends(self) -> Sequence[int]:
        """Descriptors of which one is readable when the command has ended.

        What our init tells comes some milliseconds before the kernel has taken the sandbox apart.
        It tells nothing when bubblewrap is ended before it had set the sandbox up.
        """
        return (
            (self.status, self.pidfd)
            if self.status_from_init and self.status is not None
            else (self.pidfd,)
        )

    def close(self) -> None:
        """Let go of the descriptors."""
        for descriptor in (self.pidfd, self.output, self.status, self.network, self.channel):
            if descriptor is not None:
                with contextlib.suppress(OSError):
                    os.close(descriptor)


@dataclass(frozen=True)
class Exit:
    """How a command ended: an exit code or a signal; ``started`` is false if the fence could not
    be put up.
    """

    code: int | None
    signal: int | None = None
    started: bool = True

    @property
    def good(self) -> bool:
        """Whether it ended with code 0."""
        return self.code == 0


class PrelaunchedProcess:
    """A process that has joined its limits and waits to become a command.

    Moving a process into a control group makes the kernel wait for every core, some 10 ms, which a
    seat that is taken ahead has behind it. A seat dies with its supervisor, and serves once.

    Args:
        fence: What will stand around the command; the user is said in ``run``.
        group: The limits to join.
        handed: Descriptors that the command is to have, by the same numbers; closed here.
        files: (content, path) pairs: files of the command that are in memory only.

    Raises:
        OSError: No process or descriptor is to be had.
    """

    def __init__(
        self,
        fence: Fence,
        group: Group | None,
        handed: Sequence[int] = (),
        files: Sequence[tuple[bytes, str]] = (),
    ) -> None:
        self._bwrap = fence.bwrap
        orders, self._orders = os.pipe2(os.O_CLOEXEC)
        self._output, output = os.pipe2(os.O_CLOEXEC)
        self._status: int | None = None
        self._inner_status: int | None = None
        if fence.bwrap:
            self._status, self._inner_status = os.pipe2(os.O_CLOEXEC)
        self._inner_filter = _memory_file(fence.filter) if fence.bwrap and fence.filter else None
        self._init = (
            os.open(fence.init, os.O_RDONLY | os.O_CLOEXEC) if fence.bwrap and fence.init else None
        )
        self._variables: int | None = None
        self._inner_variables: int | None = None
        if fence.bwrap:
            self._variables, self._inner_variables = _shared_memory()
        self._channel: int | None = None
        self._inner_channel: int | None = None
        if self._init is not None and fence.port:
            ends = socket.socketpair()
            self._channel, self._inner_channel = (end.detach() for end in ends)
        self._files = [(_memory_file(content), path) for content, path in files]
        handed = [*handed, *(descriptor for descriptor, _ in self._files)]
        inner = (
            self._inner_status,
            self._inner_filter,
            self._init,
            self._inner_variables,
            self._inner_channel,
        )
        kept = [*(descriptor for descriptor in inner if descriptor is not None), *handed]
        self._program = fence.seat if fence.bwrap else ""
        if self._program:
            scoped = fence.landlock >= landlock.SCOPES_SINCE
            self._pid = _spawn(self._program, group, orders, output, kept, scoped=scoped)
        else:
            self._pid = os.fork()
            if self._pid == 0:
                os.close(self._orders)
                _become(fence, group, orders, output, kept)
        for descriptor in (orders, output, *kept):
            os.close(descriptor)
        os.set_blocking(self._output, False)
        self._pidfd = os.pidfd_open(self._pid)

    @property
    def free(self) -> bool:
        """Whether it still waits. Whoever ends all descendants of the supervisor ends seats too."""
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return not poll.poll(0)

    def leave(self) -> None:
        """Give the seat up and wait until it is free."""
        os.close(self._orders)
        with contextlib.suppress(ChildProcessError):  # somebody has waited for it
            os.waitpid(self._pid, 0)
        ours = (self._output, self._status, self._pidfd, self._variables, self._channel)
        for descriptor in ours:
            if descriptor is not None:
                os.close(descriptor)

    def run(
        self,
        view: View,
        command: Sequence[str],
        environment: Mapping[str, str],
        user: tuple[int, int] | None,
    ) -> Launched:
        """Become ``command``, run by ``user``; its output comes through ``Launched.output``.

        Raises:
            OSError: The seat is gone.
        """
        line = list(command)
        if self._variables is not None:
            write = sandbox.variables if self._init is None else sandbox.inner_variables
            _fill(self._variables, write(environment))
            os.close(self._variables)
            # Those of bubblewrap itself. By this one its processes are found that have not become
            # the command yet: killed while it sets up the sandbox, it may leave one that goes on.
            environment = {name: environment[name] for name in (GANG,) if name in environment}
            line = sandbox.command_line(
                self._bwrap,
                view,
                command,
                seccomp_fd=self._inner_filter,
                status_fd=self._inner_status,
                init_fd=self._init,
                channel_fd=self._inner_channel,
                variables_fd=self._inner_variables,
                files=self._files,
            )
        network = None if view.own_network is None else _open_place(view.own_network)
        # The waiting process was started before this descriptor was opened, so it opens it
        # through this one.
        where = "" if network is None else f"/proc/{os.getpid()}/fd/{network}"
        if self._program:
            words = init.seat_orders(line, environment, user, where)
        else:
            order = [line, dict(environment), view.folder, user, where, *_list_visible(view)]
            words = json.dumps(order).encode("ascii") + b"\n"
        with os.fdopen(self._orders, "wb") as orders:
            orders.write(words)
        return Launched(
            self._pid,
            self._pidfd,
            self._output,
            self._status,
            status_from_init=self._init is not None,
            network=network,
            channel=self._channel,
        )


def launch(
    fence: Fence,
    view: View,
    command: Sequence[str],
    environment: Mapping[str, str],
    group: Group | None,
) -> Launched:
    """Start ``command`` in a seat of its own.

    Raises:
        OSError: No process or descriptor is to be had.
    """
    return PrelaunchedProcess(fence, group).run(view, command, environment, fence.user)


def _spawn(
    program: str,
    group: Group | None,
    orders: int,
    output: int,
    kept: Sequence[int],
    *,
    scoped: bool,
) -> int:
    """Start the program of a seat, without a copy of this process's memory."""
    for descriptor in (orders, *kept):
        os.set_inheritable(descriptor, True)
    return os.posix_spawn(
        program,
        [
            program,
            str(orders),
            str(os.getpid()),
            str(int(scoped)),
            *(group.procs_files() if group is not None else ()),
        ],
        {},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, output, 1),
            (os.POSIX_SPAWN_DUP2, output, 2),
        ],
        setsigmask=(),
    )


def _become(
    fence: Fence, group: Group | None, orders: int, output: int, kept: Sequence[int]
) -> NoReturn:
    """In the forked child: join the limits, wait for the command, and turn into it."""
    name = "the command"
    try:
        # The wakeup descriptor is the supervisor's socket: a signal to this process must not wake
        # the supervisor.
        signal.set_wakeup_fd(-1)
        for number in (
            signal.SIGTERM,
            signal.SIGINT,
            signal.SIGHUP,
            signal.SIGPIPE,
            signal.SIGCHLD,
        ):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        if group is not None:
            # Join before changing the user: the server owns the group's files.
            group.join()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        for descriptor in kept:
            os.set_inheritable(descriptor, True)
        os.umask(0o022)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        line, environment, folder, user, network, *visible = _read_orders(orders)
        name = line[0]
        if not fence.bwrap:
            # This process still has the server's rights, and the folder is the job's, so do not
            # follow a link in its place.
            os.fchdir(os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC))
            linux.forbid_new_privileges()
        if network:
            # setns(2) requires CAP_SYS_ADMIN, which the tenant's user does not have.
            linux.enter_network(os.open(network, os.O_RDONLY | os.O_CLOEXEC))
        if user is not None:
            # Drop groups before the user: without root's rights, groups cannot be changed.
            os.setgroups([])
            os.setresgid(user[1], user[1], user[1])
            os.setresuid(user[0], user[0], user[0])
        if fence.bwrap:
            os.chdir("/")
            landlock.keep_sockets_inside(fence.landlock)
        elif fence.landlock:
            _confine(fence, *visible)
        linux.die_with_parent(signal.SIGKILL)  # after the change of user, which clears it
        os.execvpe(name, line, environment)  # noqa: S606
    except BaseException as error:  # a forked child has nobody to raise to
        os.write(2, f"cloudml: {name} cannot be started: {error}\n".encode())
    finally:
        sys.stderr.close()
        os._exit(127)


def _list_visible(view: View) -> tuple[list[str], list[str], bool]:
    """What of the machine a command is to see where it has no mount table of its own."""
    return (
        [source for source, _ in view.read_only],
        [source for source, _ in view.writable],
        view.network,
    )


def _confine(fence: Fence, readable: Sequence[str], writable: Sequence[str], network: bool) -> None:
    landlock.confine(fence.landlock, readable=readable, writable=writable, network=network)
    landlock.drop_capabilities()
    if fence.filter:
        landlock.filter_calls(fence.filter)


def _read_orders(descriptor: int) -> list[Any]:
    """What to become. Ends the process when there will be no orders: the supervisor is gone."""
    with os.fdopen(descriptor, "r", encoding="ascii") as orders:
        words = orders.readline()
    if not words.endswith("\n"):
        os._exit(127)
    order: list[Any] = json.loads(words)
    return order


def wait(launched: Launched) -> Exit:
    """Collect a command that has ended (one of ``ends`` is readable). Its sandbox may still be
    there: end it.
    """
    if (
        launched.status_from_init
        and launched.status is not None
        and (line := _whole(launched.status).strip())
    ):
        return _exit(int(line))
    _, status = os.waitpid(launched.pid, 0)
    if launched.status is None:
        return _exit(status)
    code = os.waitstatus_to_exitcode(status)
    inside = None if launched.status_from_init else _inner_exit_code(launched.status)
    if code < 0:
        return Exit(None, -code)
    if inside is None:
        return Exit(code, started=False)
    # bubblewrap's init answers like a shell: 128 + n for signal n
    return Exit(None, inside - 128) if 128 < inside <= 128 + signal.NSIG else Exit(inside)


def is_gone(launched: Launched) -> bool:
    """Whether nothing is left of a command whose end was collected, its sandbox neither."""
    try:
        return os.waitpid(launched.pid, os.WNOHANG)[0] != 0
    except ChildProcessError:  # waited for already
        return True


def _exit(status: int) -> Exit:
    code = os.waitstatus_to_exitcode(status)
    return Exit(code) if code >= 0 else Exit(None, -code)


def _whole(descriptor: int) -> bytes:
    os.set_blocking(descriptor, False)
    data = b""
    with contextlib.suppress(BlockingIOError):
        while chunk := os.read(descriptor, 4096):
            data += chunk
    return data


def _inner_exit_code(descriptor: int) -> int | None:
    for text in _whole(descriptor).splitlines():
        with contextlib.suppress(ValueError):
            if (code := json.loads(text).get("exit-code")) is not None:
                return int(code)
    return None


def _open_place(place: tuple[int, str]) -> int:
    folder, name = place
    return os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)


def _shared_memory() -> tuple[int, int]:
    """An empty file in memory: to write it here, and to read what was written there."""
    descriptor = os.memfd_create("variables")
    return descriptor, os.dup(descriptor)


def _memory_file(content: bytes) -> int:
    descriptor = os.memfd_create("memory")
    _fill(descriptor, content)
    return descriptor


def _fill(descriptor: int, content: bytes) -> None:
    """Write all of it, and go back to the beginning for the reader, who shares the place."""
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]
    os.lseek(descriptor, 0, os.SEEK_SET)


def tenant_fence(config: LocalConfig, user: tuple[int, int] | None) -> Fence:
    """The fence for a tenant's commands."""
    filtered = config.seccomp and bool(config.bwrap or config.landlock)
    rules = seccomp.program() if filtered else None
    port = JOB_PORT if config.network.fence == NONE and config.bwrap and config.init else 0
    return Fence(config.bwrap, config.init, config.seat, rules, user, config.landlock, port)
