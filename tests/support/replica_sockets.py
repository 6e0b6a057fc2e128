"""Where a gateway without an engine finds replicas: sockets laid out as the local engine does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cloud_ml.domain.addresses import JobSocket
from cloud_ml.domain.services.routes import SOCKET, Backend
from cloud_ml.job_sockets import WORK_FOLDER


def replica_folder(jobs: Path, uid: str) -> Path:
    """The folder in which a replica makes its socket; ``jobs`` is a gateway's ``job_sockets``."""
    folder = jobs / uid / WORK_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def backend(uid: str, **more: Any) -> Backend:
    """A replica whose socket lies in its ``replica_folder``."""
    return Backend(uid, JobSocket(uid, SOCKET), **more)
