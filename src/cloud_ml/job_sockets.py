"""The way in to a process of a job: a socket that it made in its working folder.

No port is taken and no network is crossed, so it is the same for every policy of network, and
nobody else on the machine can reach it. The folder belongs to the tenant, so nothing in it is
believed: links are not followed, the owner is compared, and what was looked at is what is connected
to.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import stat
from pathlib import Path

from cloud_ml.domain.addresses import JobSocket
from cloud_ml.errors import Unavailable

WORK_FOLDER = "work"
"""The working folder of a job, below the job's own folder."""
_UID = re.compile(r"[A-Za-z0-9_-]{1,255}")
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,254}")
# O_PATH names a file without opening it: opening a pipe or a device could block or have effects.
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class JobSockets:
    """Connects to sockets of the jobs of this machine.

    Args:
        jobs: The folder of all jobs, a folder for each uid.
    """

    def __init__(self, jobs: Path) -> None:
        self._jobs = jobs

    def connect(self, address: JobSocket) -> socket.socket:
        """A connection to the socket; it does not block.

        Raises:
            Unavailable: There is none, or nobody listens.
        """
        uid, name = address.job_uid, address.name
        if not _UID.fullmatch(uid) or not _NAME.fullmatch(name):
            raise Unavailable(f"{uid!a}, {name!a} is no socket of a job")
        try:
            with contextlib.ExitStack() as descriptors:

                def opened(path: str, flags: int, within: int | None = None) -> int:
                    number = os.open(path, flags, dir_fd=within)
                    descriptors.callback(os.close, number)
                    return number

                folder = opened(f"{self._jobs}/{uid}", _FOLDER)
                work = opened(WORK_FOLDER, _FOLDER, folder)
                found = opened(name, _FILE, work)
                status = os.fstat(found)
                if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.fstat(work).st_uid:
                    raise Unavailable(f"{name} is no socket of the job")
                return _connect(f"/proc/self/fd/{found}")
        except OSError as error:
            raise Unavailable(f"nobody answers at {name}: {error.strerror}") from error


def _connect(path: str) -> socket.socket:
    # A job may listen but never accept. Once its backlog is full, connect(2) would block.
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        made.connect(path)
    except BaseException:
        made.close()
        raise
    return made
