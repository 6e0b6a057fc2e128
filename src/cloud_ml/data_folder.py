"""The folder of everything that a server keeps, and who may use it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from cloud_ml.errors import Conflict, OutOfSpace

LOCK_NAME = "server.lock"
"""Held by the server that uses the folder; its process id is written in it."""


def credentials(data: Path) -> Path:
    """Where the administrator's key is written for the operator, at each start."""
    return data / "credentials.json"


def has_been_used(data: Path) -> bool:
    """Whether a server has been up here: then its database must exist."""
    return credentials(data).exists()


def hold(data: Path, *, hint: str = "Stop it, or give this one a folder of its own with --data-dir.") -> int:
    """Make the data folder, and make sure that nobody else uses it until the returned descriptor is closed.

    The folder is passable, since users of jobs have their working folders below; what is secret in it
    is closed by its own mode.

    Args:
        data: The folder.
        hint: What to do when a server uses it.

    Raises:
        Conflict: A server uses it.
        OutOfSpace: It cannot be made or written.
    """
    try:
        _make(data)
        data.chmod(0o711)
        descriptor = os.open(data / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise OutOfSpace(f"the data folder {data} cannot be used: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(descriptor, 32).decode(errors="replace") or "unknown"
        os.close(descriptor)
        raise Conflict(f"another server (process {holder}) uses the data folder {data}", hint=hint) from None
    os.ftruncate(descriptor, 0)
    os.write(descriptor, str(os.getpid()).encode())
    return descriptor


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
