"""Folders of this machine that a job is shown, known by more than their paths.

While the environment of an attempt is made, which may take minutes, any bucket of the organisation
may be removed. Its name may then become another one's, even another organisation's.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from cloud_ml.engines.local import linux


@dataclass(frozen=True)
class BindMount:
    """The folder ``source`` of this machine is to be seen at ``target``.

    ``identity`` tells it from other folders of that path; see ``identity``.
    """

    source: str
    target: str
    writable: bool
    identity: str


def identity(folder: str) -> str:
    """What tells the folder from every one that has had or will have its path.

    File systems give the number of a removed folder to a new one. So the time at which it was made
    is a part; 0 where the file system does not tell it.

    Raises:
        OSError: It cannot be seen.
    """
    facts = os.stat(folder, follow_symlinks=False)  # noqa: PTH116 - up to a thousand at each start
    return f"{facts.st_dev}:{facts.st_ino}:{linux.birth_time_ns(folder)}"


def removed(mounts: Sequence[BindMount]) -> Sequence[BindMount]:
    """Those whose folder is gone, or has another one in its place."""
    return [mount for mount in mounts if not _is_there(mount)]


def _is_there(mount: BindMount) -> bool:
    try:
        return identity(mount.source) == mount.identity
    except OSError:
        return False
