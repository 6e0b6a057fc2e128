"""The administrator's key, written for the operator."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from pathlib import Path

from cloud_ml import data_folder, failpoints
from cloud_ml.usecases.first_start import FirstStart

logger = logging.getLogger(__name__)


def write_credentials(data_dir: Path, first_start: FirstStart, endpoint: str) -> Path:
    """Write the administrator's key for the operator, readable by its owner only.

    On a full or read-only disk the file of an earlier start stays: the server still answers reads.

    Raises:
        OSError: It cannot be written, and there is none.
    """
    path = data_folder.credentials(data_dir)
    admin = first_start.admin
    if admin is not None:
        content = {"endpoint": endpoint, "access_key": admin.access_key, "secret_key": admin.secret}
        try:
            _replace_credentials(path, json.dumps(content, indent=2))
        except OSError:
            if not path.exists():
                raise
            logger.warning(
                "%s cannot be written now; its endpoint may be that of an earlier start",
                path,
                exc_info=True,
            )
    return path


def _remove_drafts(path: Path) -> None:
    """Remove what a crash has left."""
    for draft in path.parent.glob(f"{path.stem}*.new"):
        pid = draft.name.removesuffix(".new").rpartition(".")[2]
        if not pid.isdecimal() or not Path("/proc", pid).exists():
            draft.unlink(missing_ok=True)


def _replace_credentials(path: Path, content: str) -> None:
    _remove_drafts(path)
    # Servers that share the folder may write it at once.
    draft = path.with_name(f"{path.stem}.{os.getpid()}.new")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(content)
        failpoints.here("start.made")
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    failpoints.here("start.told")
