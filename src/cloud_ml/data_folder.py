"""The folder of everything that a server keeps, and who may use it."""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import stat
from pathlib import Path

from cloud_ml import lock_file
from cloud_ml.errors import (
    CloudMlError,
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    OutOfSpace,
    Unavailable,
)

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_OF_THE_DISK = frozenset({errno.EIO, errno.ESTALE, errno.ENOLCK, errno.EMFILE, errno.ENFILE})
"""Errors that may pass; others come from the path or from its file system, and stay."""
_HINT_FOR_SHARERS = (
    "Stop it (cloudml server stop) and start it again with --shared-data: servers share a data "
    "folder if each of them says so."
)


def credentials(data: Path) -> Path:
    """Where the administrator's key is written for the operator, at each start."""
    return data / "credentials.json"


def has_been_used(data: Path) -> bool:
    """Whether a server has been up here: then its database must exist."""
    return credentials(data).exists()


def check_used(data: Path, database: Path) -> None:
    """Refuse a folder in which no server has been up, and which has no ``database``.

    Raises:
        NotFound: It is such a folder.
    """
    try:
        is_used = has_been_used(data) or database.exists()
    except OSError:  # closed to this user: whoever opens the database says so
        return
    if not is_used:
        raise never_used(data)


def never_used(data: Path) -> NotFound:
    """The error of commands that look for a server."""
    return NotFound(
        f"no server has used the data folder {data}",
        field="data_dir",
        hint="Name the folder of the server with --data-dir, or its settings with --config.",
    )


def hold(
    data: Path,
    *,
    hint: str = "Stop it (cloudml server stop), or give this one a folder of its own with "
    "--data-dir.",
    for_server: bool = False,
    shared: bool = False,
) -> int:
    """Make the data folder, and make sure that nobody else uses it until the returned descriptor is
    closed; with ``shared``, nobody but servers of this machine that share it, too.

    The folder is passable, since users of jobs have their working folders below; what is secret in
    it is closed by its own mode.

    Args:
        data: The folder.
        hint: What to do when a server uses it.
        for_server: A server is to run on it, which must not leave files that the folder's own user
            cannot read.
        shared: Other servers may use it that say the same.

    Raises:
        Conflict: A server uses it, or one of another machine shares it.
        Forbidden: It belongs to another user.
        Unavailable: Its disk has no file locks.
        InvalidRequest: There is something else at its path, it is a folder for all users, or its
            file system takes no files.
        OutOfSpace: Its disk is full.
    """
    if for_server:
        check_owner(data)
        _check_not_shared(data)
    try:
        _make(data)
        descriptor = lock_file.open_at(data, for_server=for_server)
        data.chmod(0o711)
    except PermissionError as error:
        if (owner := _owner_in(data)) == os.geteuid():
            raise _cannot_be_used(data, error) from error
        raise _belongs_to_another(data, owner) from error
    except (FileExistsError, NotADirectoryError) as error:
        raise _no_folder(data) from error
    except OSError as error:
        raise _cannot_be_used(data, error) from error
    try:
        is_ours = lock_file.take(descriptor, shared=shared)
    except OSError as error:
        os.close(descriptor)
        if error.errno in _FULL:
            raise _cannot_be_used(data, error) from error
        raise _without_locks(data, error) from error
    if not is_ours:
        pids = ", ".join(map(str, lock_file.live_holders(descriptor))) or "unknown"
        os.close(descriptor)
        raise Conflict(
            f"another server (process {pids}) uses the data folder {data}",
            hint=_HINT_FOR_SHARERS if shared else hint,
        )
    try:
        if shared:
            lock_file.add_holder(descriptor, data)
        else:
            lock_file.set_holder(descriptor)
    except OSError as error:
        os.close(descriptor)
        raise _cannot_be_used(data, error) from error
    except Conflict:
        os.close(descriptor)
        raise
    return descriptor


def check_owner(data: Path) -> None:
    """Refuse a folder of another user, before anything else is tried.

    The lock file counts where there is one, since a server of that user has been here.

    Raises:
        Forbidden: It belongs to another user.
    """
    for path in (data / lock_file.NAME, data):
        try:
            owner = path.stat().st_uid
        except OSError:  # there is none yet, or it is closed to this process: ``hold`` tells
            continue
        if owner != os.geteuid():
            raise _belongs_to_another(data, owner)
        return


def _check_not_shared(data: Path) -> None:
    """Refuse ``/tmp`` and its like: the mode of the data folder would close it to all others."""
    try:
        is_shared = bool(data.stat().st_mode & stat.S_ISVTX)
    except OSError:
        return
    if is_shared and not (data / lock_file.NAME).exists():
        raise InvalidRequest(
            f"the data folder {data} is shared by all users of this machine",
            field="server.data_dir",
            value=str(data),
            allowed="a folder for this server alone",
            hint=f"Name a folder in it: --data-dir {data / 'cloud-ml'}",
        )


def _cannot_be_used(data: Path, error: OSError) -> CloudMlError:
    """The error of a folder that the system refuses, also to its owner."""
    reason = error.strerror or str(error)
    if error.errno in _FULL:
        return OutOfSpace(f"the disk of the data folder {data} is full ({reason})")
    if error.errno in _OF_THE_DISK:
        return Unavailable(f"the data folder {data} cannot be used ({reason})")
    place = next((one for one in (data, *data.absolute().parents) if _is_folder(one)), data)
    what = "cannot be written" if place == data else f"cannot be created in {place}"
    return InvalidRequest(
        f"the data folder {data} {what}: {_reason_of_place(place, error.errno) or reason}",
        field="server.data_dir",
        value=str(data),
        allowed="a folder on a disk that this user may write to",
        hint="Choose another one with --data-dir.",
    )


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a name that is too long, say
        return False


def _reason_of_place(place: Path, number: int | None) -> str:
    """What the system's sentence does not say; empty if it says enough."""
    if number == errno.EROFS:
        return "its disk is read-only"
    if place.parts[:2] in (("/", "proc"), ("/", "sys")):
        return f"/{place.parts[1]} shows the kernel and stores no files"
    return ""


def _without_locks(data: Path, error: OSError) -> Unavailable:
    return Unavailable(
        f"the disk of the data folder {data} has no file locks ({error.strerror})",
        hint="Two servers could damage each other's data. Use a disk of this machine, or a network "
        "file system that is mounted with locks.",
    )


def _owner_in(data: Path) -> int:
    """Who owns what keeps this process out: the lock file, the folder, or the nearest one above."""
    for path in (data / lock_file.NAME, data, *data.parents):
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
        hint=_way_to_become(owner, other) + _way_to_take(data, own),
    )


def _way_to_become(owner: int, name: str) -> str:
    """How the command is typed so that it runs as another user."""
    if os.geteuid() != 0 or owner == 0:
        typed = "sudo cloudml server …" if owner == 0 else f"sudo -u {name} cloudml server …"
    elif name == str(owner):  # a user without a name, as in a container
        typed = f"setpriv --reuid {owner} --clear-groups cloudml server …"
    else:
        typed = f"runuser -u {name} -- cloudml server …"
    return f"Run it as {name}: {typed} (in a unit of systemd: User={name})"


def _way_to_take(data: Path, own: str) -> str:
    """How the folder gets another owner, which nobody is told while a server uses it."""
    if lock_file.is_held(data):
        return ". A server runs on it at the moment."
    return f", or give the folder to {own}: chown -R {own}: {data}"


def _no_folder(data: Path) -> InvalidRequest:
    """Something at the path, or above it, is no folder."""
    for path in (*reversed(data.parents), data):
        if path.is_symlink() and not path.exists():
            what = f"{path} is a link to {path.readlink()}, which does not exist"
            break
        if path.exists() and not path.is_dir():
            what = f"{path} is a file"
            break
    else:
        what = "something else has been put in its place"
    return InvalidRequest(
        f"the data folder {data} cannot be used: {what}",
        field="server.data_dir",
        value=str(data),
        allowed="a folder, or a path where one can be made",
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
