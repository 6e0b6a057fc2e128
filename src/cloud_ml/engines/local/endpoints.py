"""The way in to a process of a job: a socket that it made in its working folder.

No port is taken and no network is crossed, so it is the same for every policy of network, and
nobody else on the machine can reach it. The folder belongs to the tenant, so nothing in it is
believed: links are not followed, the owner is compared, and what was looked at is what is connected
to.
"""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from typing import Self

from cloud_ml.errors import Unavailable


def connect(folder: Path, name: str) -> socket.socket:
    """A connection to the socket of that name in a working folder; it does not block.

    Raises:
        Unavailable: There is none, or nobody listens.
    """
    try:
        with _opened(str(folder), os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW) as place:
            owner = os.fstat(place.number).st_uid
            with _opened(name, os.O_PATH | os.O_NOFOLLOW, place.number) as door:
                found = os.fstat(door.number)
                if not stat.S_ISSOCK(found.st_mode) or found.st_uid != owner:
                    raise Unavailable(f"{name} is no socket of the job")
                return _connected(f"/proc/self/fd/{door.number}")
    except OSError as error:
        raise Unavailable(f"nobody answers at {name}: {error.strerror}") from error


def _connected(path: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        made.connect(path)
    except BaseException:
        made.close()
        raise
    return made


class _opened:  # noqa: N801 - reads like a function
    """A descriptor that is closed at the end of a block."""

    def __init__(self, path: str, flags: int, within: int | None = None) -> None:
        self.number = os.open(path, flags | os.O_CLOEXEC, dir_fd=within)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.number)
