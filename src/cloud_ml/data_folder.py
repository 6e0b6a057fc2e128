"""The folder of everything that a server keeps, and who may use it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
from pathlib import Path

from cloud_ml.errors import Conflict, Forbidden, OutOfSpace

LOCK_NAME = "server.lock"
"""Held by the server that uses the folder; its process id is written in it."""


def credentials(data: Path) -> Path:
    """Where the administrator's key is written for the operator, at each start."""
    return data / "credentials.json"


def has_been_used(data: Path) -> bool:
    """Whether a server has been up here: then its database must exist."""
    return credentials(data).exists()


def hold(
    data: Path,
    *,
    hint: str = "Stop it (cloudml server stop), or give this one a folder of its own with "
    "--data-dir.",
    for_server: bool = False,
) -> int:
    """Make the data folder, and make sure that nobody else uses it until the returned descriptor is
    closed.

    The folder is passable, since users of jobs have their working folders below; what is secret in
    it is closed by its own mode.

    Args:
        data: The folder.
        hint: What to do when a server uses it.
        for_server: A server is to run on it, which must not leave files that the folder's own user
            cannot read.

    Raises:
        Conflict: A server uses it.
        Forbidden: It belongs to another user.
        OutOfSpace: It cannot be made or written.
    """
    try:
        _make(data)
        descriptor = _open_lock(data, for_server=for_server)
        data.chmod(0o711)
    except PermissionError as error:
        raise _belongs_to_another(data, _owner_in(data)) from error
    except OSError as error:
        raise OutOfSpace(f"the data folder {data} cannot be used: {error.strerror}") from error
    owner = os.fstat(descriptor).st_uid
    if for_server and owner != os.geteuid():
        os.close(descriptor)
        raise _belongs_to_another(data, owner)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(descriptor, 32).decode(errors="replace") or "unknown"
        os.close(descriptor)
        raise Conflict(
            f"another server (process {holder}) uses the data folder {data}", hint=hint
        ) from None
    os.ftruncate(descriptor, 0)
    os.write(descriptor, str(os.getpid()).encode())
    return descriptor


def check_owner(data: Path) -> None:
    """Refuse a folder in which another user's server has been, before anything else is tried.

    Raises:
        Forbidden: It belongs to another user.
    """
    try:
        owner = (data / LOCK_NAME).stat().st_uid
    except OSError:  # there is none yet, or it is closed to this process: ``hold`` tells
        return
    if owner != os.geteuid():
        raise _belongs_to_another(data, owner)


def _open_lock(data: Path, *, for_server: bool) -> int:
    """Open the lock file. One that root makes for maintenance belongs to the folder's user,
    whose server needs it.
    """
    flags = os.O_RDWR | os.O_CLOEXEC
    try:
        return os.open(data / LOCK_NAME, flags)
    except FileNotFoundError:
        made = os.open(data / LOCK_NAME, flags | os.O_CREAT, 0o600)
    if os.geteuid() == 0 and not for_server:
        owner = data.stat()
        os.fchown(made, owner.st_uid, owner.st_gid)
    return made


def _owner_in(data: Path) -> int:
    """Who owns what keeps this process out: the lock file, the folder, or the nearest one above."""
    for path in (data / LOCK_NAME, data, *data.parents):
        with contextlib.suppress(OSError):
            return path.stat().st_uid
    return 0


def _belongs_to_another(data: Path, owner: int) -> Forbidden:
    other, own = user_name(owner), user_name(os.geteuid())
    if not data.exists():
        return Forbidden(
            f"the data folder {data} cannot be created: the folder above belongs to the user "
            f"{other}, and this process runs as {own}",
            field="server.data_dir",
            hint=f"As {other}, create it first: install -d -o {own} -m 711 {data}",
        )
    return Forbidden(
        f"the data folder {data} belongs to the user {other}, and this process runs as {own}",
        field="server.data_dir",
        hint=f"Run it as {other} (in a unit of systemd: User={other}), or give the folder to "
        f"{own}: chown -R {own}: {data}",
    )


def user_name(uid: int) -> str:
    """The name of a user, or the number where there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _make(folder: Path) -> None:
    """Make a folder and those above it, so that a power cut leaves them there."""
    if not folder.is_dir():
        if not folder.parent.is_dir():
            _make(folder.parent)
        folder.mkdir(exist_ok=True)
        above = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(above)
        finally:
            os.close(above)
