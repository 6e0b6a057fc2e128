"""What a gateway that root has started gives up before it hears of a stranger: its user, groups
and capabilities.
"""

from __future__ import annotations

import importlib
import logging
import os
from pathlib import Path

from cloud_ml import linux
from cloud_ml.gateway import opener
from cloud_ml.job_sockets import JobSockets

_LATER = (
    "concurrent.futures.thread",
    "encodings.idna",
    "encodings.ascii",
    "encodings.latin_1",
    "traceback",
)
"""What the standard library imports when it is needed: a folder of packages below /root is
closed by then.
"""
logger = logging.getLogger(__name__)


def can_give_up(user: int, folder: Path, job_sockets: str) -> bool:
    """Make the folder that user's and start the opener; false where nothing is to be given up,
    or cannot be.
    """
    if not user or os.geteuid() != 0:
        return False
    try:
        os.chown(folder, user, user)
    except OSError as error:  # such as a container that maps few users
        logger.warning(
            "the gateway keeps the rights of root: no folder can be given to user %d: %s",
            user,
            error,
        )
        return False
    if job_sockets:
        opener.start(JobSockets(Path(job_sockets)))
    return True


def give_up(user: int) -> None:
    """Become that user for ever. What listens already goes on to listen, also below port 1024."""
    for name in _LATER:
        importlib.import_module(name)
    # Groups before the user: without root's capabilities they cannot be changed any more.
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)  # from root to another: every capability goes with it
    linux.forbid_new_privileges()
