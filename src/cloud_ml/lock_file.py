"""The lock of a data folder: a file that is locked by the server that uses the folder, or by each of
those that share it, and that names them.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from cloud_ml.errors import Conflict

NAME = "server.lock"
"""Its name in the data folder. A line for each holder begins with its process id."""

_MOST_BYTES = 1 << 16
_LOOKED_AT_S = 5.0
_RETRY_S = 0.02


def open_at(data: Path, *, for_server: bool) -> int:
    """Open the lock file. One that root makes for maintenance belongs to the folder's user,
    whose server needs it.
    """
    # The lock belongs to the open file: a child that inherited it would hold it after this process.
    flags = os.O_RDWR | os.O_CLOEXEC
    try:
        return os.open(data / NAME, flags)
    except FileNotFoundError:
        # Without O_EXCL: if two processes create the file at once, both open the same file, and
        # the lock decides.
        made = os.open(data / NAME, flags | os.O_CREAT, 0o600)
    if os.geteuid() == 0 and not for_server:
        owner = data.stat()
        os.fchown(made, owner.st_uid, owner.st_gid)
    return made


def take(descriptor: int, *, shared: bool) -> bool:
    """Take the lock, for this process alone or with others; false if a server has it.

    ``cloudml server stop`` takes it for a moment to see whether a server runs. So a lock whose file
    names no process that lives is tried again for a while.
    """
    deadline = time.monotonic() + _LOOKED_AT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not shared:
                return True
            # flock(2) gives the lock up before it takes the other kind. Another server may come in
            # between: then the second call fails, and the lock is tried again below.
            # Nobody else is here: what the file says is of the past.
            os.pwrite(descriptor, b"\n" * os.fstat(descriptor).st_size, 0)
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            if shared and _take_shared(descriptor):
                return True
            lives = any(Path(f"/proc/{pid}").exists() for pid in holders(descriptor))
            if lives or time.monotonic() > deadline:
                return False
            time.sleep(_RETRY_S)
        else:
            return True


def _take_shared(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_held(data: Path) -> bool:
    """Whether a server has the lock, as far as this process can see."""
    try:
        descriptor = os.open(data / NAME, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def holders(descriptor: int) -> list[int]:
    """The process ids in a lock file: of those that hold the lock, and maybe of some that have
    ended.
    """
    heads = [line.split()[0] for line in _lines(descriptor)]
    return [int(head) for head in heads if head.isdecimal()]


def live_holders(descriptor: int) -> list[int]:
    """The holders that still run. All of them if none is seen here, as from another container."""
    pids = list(dict.fromkeys(holders(descriptor)))
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()] or pids


def add_holder(descriptor: int, data: Path) -> None:
    """Write this process into the lock file, beside the other servers that share the folder.

    Jobs run on the machine of the one that leads, and the next leader looks for their processes.
    So all of them are on one machine, and see the same processes.

    Raises:
        Conflict: One of them is elsewhere.
    """
    here = _process_space()
    # One after the other. It is another lock than that of flock(2), and free for a moment only.
    fcntl.lockf(descriptor, fcntl.LOCK_EX)
    try:
        lines = _lines(descriptor)
        if any(line.split()[1:] not in ([], [here]) for line in lines):
            raise Conflict(
                f"a server on another machine, or in another container, shares the data folder "
                f"{data}: jobs run on its machine, so this one could not continue them",
                hint="Start it on the same machine, or stop all servers there first.",
            )
        # Else each start would make the file longer, as long as one of the servers runs.
        kept = [line for line in lines if Path("/proc", line.split()[0]).exists()]
        _write(
            descriptor, "".join(f"{line}\n" for line in [*kept, f"{os.getpid()} {here}"]).encode()
        )
    finally:
        fcntl.lockf(descriptor, fcntl.LOCK_UN)


def _lines(descriptor: int) -> list[str]:
    lines = os.pread(descriptor, _MOST_BYTES, 0).decode(errors="replace").splitlines()
    return [line for line in lines if line.strip()]


def set_holder(descriptor: int) -> None:
    """Write this process into the lock file, as the only one that holds the lock."""
    _write(descriptor, str(os.getpid()).encode())


def _write(descriptor: int, content: bytes) -> None:
    """Replace what a lock file says, in one step: whoever reads it meanwhile, or after a crash,
    finds lines and empty ones. Its block is never given back, since the disk may be full.
    """
    size = os.fstat(descriptor).st_size
    os.pwrite(descriptor, content.ljust(size, b"\n"), 0)
    os.ftruncate(descriptor, len(content))


def _process_space() -> str:
    """Names the machine since its start, and the namespace in which process ids mean something."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"
