"""The fence around one command: bubblewrap's command line, built by pure functions.

Inside, a job sees a read-only runtime, its working folder, its buckets and nothing else of the
machine; own pid, mount, ipc, uts and user namespaces (and network, by policy); no capabilities; no
new privileges; the filter of ``seccomp``. Variables travel in a file in memory, never in an
argument list. Bubblewrap itself starts without any: it is outside the sandbox, and with
``LD_PRELOAD`` of a job it would load what the job wrote. So does ``init``, which has descriptors that
the job must not have.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cloud_ml.engines.local.files import working_directory
from cloud_ml.engines.local.isolation import etc

WORK, ENVIRONMENT, STORAGE, FDS = etc.HOME, "/env", "/storage", "/fds"
CODE = f"{WORK}/{working_directory.CODE}"
"""The working directory of code that was sent; its parent is the job's, too."""
USER_ID = etc.USER_ID
_SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_PROCESSORS = "/sys/devices/system/cpu"


@dataclass(frozen=True)
class View:
    """What a command sees.

    ``read_only`` and ``writable`` are (source, target) pairs; ``etc`` is the folder that it sees as
    ``/etc``. ``own_network`` is where a network that is not the machine's is mounted: a folder's
    descriptor, a name in it. The targets in ``optional`` are left out where the source is gone.
    ``unfinished`` leaves the top folder open for what is mounted later. ``port`` is where its first
    process listens for whoever is to answer the command; 0 for nowhere.
    """

    read_only: Sequence[tuple[str, str]] = ()
    writable: Sequence[tuple[str, str]] = ()
    folder: str = WORK
    hostname: str = "job"
    network: bool = False
    own_network: tuple[int, str] | None = None
    etc: str = ""
    optional: Collection[str] = ()
    unfinished: bool = False
    port: int = 0


def command_line(
    bwrap: str,
    view: View,
    command: Sequence[str],
    *,
    seccomp_fd: int | None = None,
    status_fd: int | None = None,
    init_fd: int | None = None,
    channel_fd: int | None = None,
    variables_fd: int | None = None,
    files: Sequence[tuple[int, str]] = (),
) -> list[str]:
    """The arguments that run ``command`` inside the fence.

    Args:
        bwrap: The path of bubblewrap.
        view: What the command sees.
        command: The command and its arguments.
        seccomp_fd: Where the filter can be read.
        status_fd: Where the end is told: by ``init``, or by bubblewrap in its own JSON.
        init_fd: The program ``init``, open for reading. It needs no name inside that way.
        channel_fd: Where ``init`` sends the socket that listens on ``View.port``. It is closed before
            the command starts.
        variables_fd: Where the variables of the command can be read: by ``init`` as
            ``inner_variables`` writes them, else by bubblewrap as ``variables`` does.
        files: (descriptor, target) pairs. What can be read from a descriptor becomes a file in
            memory, for the command to read and not to change; it is on no disk, and gone with the
            sandbox.
    """
    line = [
        bwrap,
        "--unshare-user",
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
        # No --new-session here: the process that becomes bubblewrap has a session of its own, and
        # the filter of calls refuses TIOCSTI.
        "--unshare-cgroup-try",
    ]
    if variables_fd is not None and init_fd is None:
        line += ["--args", str(variables_fd)]
    if not view.network:
        line.append("--unshare-net")
    line += ["--uid", str(USER_ID), "--gid", str(USER_ID), "--hostname", view.hostname]
    line += ["--die-with-parent", "--cap-drop", "ALL"]
    for path in _SYSTEM_FOLDERS:
        line += _system_folder(path)
    line += ["--ro-bind-try", _PROCESSORS, _PROCESSORS]
    if view.etc:
        line += _etc(view.etc)
    line += ["--proc", "/proc", "--dev", "/dev"]
    for source, target in view.writable:
        line += ["--bind-try" if target in view.optional else "--bind", source, target]
    # Mount these after the writable folders: a later mount covers an earlier one, and these may
    # lie below.
    for source, target in view.read_only:
        line += ["--ro-bind-try" if target in view.optional else "--ro-bind", source, target]
    for descriptor, target in files:
        line += ["--ro-bind-data", str(descriptor), target]
    if seccomp_fd is not None:
        line += ["--seccomp", str(seccomp_fd)]
    if init_fd is not None:
        line.append("--as-pid-1")
        channel, port = (-1, 0) if channel_fd is None else (channel_fd, view.port)
        variables = -1 if variables_fd is None else variables_fd
        numbers = (status_fd, init_fd, variables, channel, port)
        command = [f"/proc/self/fd/{init_fd}", *map(str, numbers), *command]
    elif status_fd is not None:
        line += ["--json-status-fd", str(status_fd)]
    # This comes last, because bubblewrap has to create the mount targets before.
    if not view.unfinished:
        line += ["--remount-ro", "/"]
    return [*line, "--chdir", view.folder, "--", *command]


def variables(environment: Mapping[str, str]) -> bytes:
    """Arguments that set the variables of the command, as bubblewrap reads them from a file.

    Raises:
        OSError: A string has a NUL in it, as no program can be given.
    """
    return _join(
        string for name, value in environment.items() for string in ("--setenv", name, value)
    )


def inner_variables(environment: Mapping[str, str]) -> bytes:
    """The variables of the command, as ``init`` reads them from a file.

    Raises:
        OSError: A string has a NUL in it, as no program can be given.
    """
    return _join(f"{name}={value}" for name, value in environment.items())


def _join(strings: Iterable[str]) -> bytes:
    strings = list(strings)
    if any("\0" in string for string in strings):
        raise OSError(errno.EINVAL, "a variable of the command has a NUL character in it")
    return os.fsencode("".join(f"{string}\0" for string in strings))


def _system_folder(path: str) -> list[str]:
    if os.path.islink(path):  # noqa: PTH114 - /bin and others are links into /usr on most machines
        return ["--symlink", os.readlink(path), path]  # noqa: PTH115
    return ["--ro-bind-try", path, path]


def _etc(folder: str) -> list[str]:
    line = ["--ro-bind", folder, "/etc"]
    for name in etc.MOUNTED:
        if os.path.isdir(f"{folder}/{name}"):  # noqa: PTH112 - where to mount it cannot be made any more
            line += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    return line


def find_bwrap(user: tuple[int, int] | None) -> tuple[str, str]:
    """The path of a bubblewrap that works here, or an empty one and the sentence that says why.

    Args:
        user: The (uid, gid) that jobs run as when the server is root.
    """
    path = shutil.which("bwrap")
    if path is None:
        return (
            "",
            "jobs are not sandboxed: bubblewrap is not installed; apt install bubblewrap (or "
            "dnf, pacman, …)",
        )
    path = os.path.realpath(path)
    identity = {"user": user[0], "group": user[1], "extra_groups": []} if user else {}
    try:
        probe = subprocess.run(  # noqa: S603 - our own command line
            command_line(path, View(folder="/"), ["/bin/true"]),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            timeout=20, check=False, cwd="/", env={}, **identity,  # type: ignore[call-overload]
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        return "", f"jobs are not sandboxed: bubblewrap does not start: {error}"
    if probe.returncode == 0:
        return path, ""
    words = probe.stderr.decode(errors="replace").strip().splitlines()
    return "", (
        "jobs are not sandboxed: bubblewrap fails here "
        f"({words[-1] if words else probe.returncode}); allow unprivileged user namespaces (sysctl "
        "kernel.unprivileged_userns_clone=1, user.max_user_namespaces>0)"
    )
