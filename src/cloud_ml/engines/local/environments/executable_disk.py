"""Whether the disk of environments lets programs be loaded from it."""

from __future__ import annotations

import os
from pathlib import Path


def refusal(folder: Path) -> str:
    """Why compiled packages cannot be loaded from ``folder``, which need not exist yet; empty if
    they can.
    """
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.statvfs(existing).f_flag & os.ST_NOEXEC:
        return ""
    return (
        f"compiled packages such as NumPy cannot be loaded: {folder} is on a disk mounted with "
        "noexec; mount it with exec, or choose another folder with --environments-dir"
    )
