"""Folders of this machine that a job is shown, known by more than their paths.

While the environment of an attempt is made, which may take minutes, any bucket of the organisation
may be removed. Its name may then become another one's, even another organisation's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cloud_ml import linux
from cloud_ml.engines.local.isolation.sandbox import View


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


class BucketMounts:
    """The folders of buckets that a gang is shown, as long as they are there.

    Args:
        mounts: All that it was to be shown.
        log: Takes a line for the job's log.
    """

    def __init__(self, mounts: Sequence[BindMount], log: Callable[[bytes], None]) -> None:
        self._mounts = mounts
        self._log = log
        self._noted_as_removed: set[str] = set()

    def present(self) -> Sequence[BindMount]:
        """Those whose folder is there still. What is left out is noted in the log, once."""
        gone = {mount for mount in self._mounts if not _is_there(mount)}
        for name in sorted({Path(mount.source).name for mount in gone} - self._noted_as_removed):
            self._noted_as_removed.add(name)
            self._log(f"cloudml: the bucket {name} was removed; the job does not see it\n".encode())
        return [mount for mount in self._mounts if mount not in gone]

    def holding(self, path: str) -> BindMount | None:
        """The one below whose target ``path`` lies, if its folder is there still."""
        for mount in self._mounts:
            if path.startswith(f"{mount.target}/"):
                return mount if _is_there(mount) else None
        return None

    def without_removed(self, view: View) -> View:
        """The view as it is to be shown now. Buckets may have been removed since it was made, by
        those who may do so; the job is as if it had begun after that.
        """
        gone = {mount.target for mount in self._mounts}
        gone -= {mount.target for mount in self.present()}
        return replace(
            view,
            read_only=[pair for pair in view.read_only if pair[1] not in gone],
            writable=[pair for pair in view.writable if pair[1] not in gone],
        )


def _is_there(mount: BindMount) -> bool:
    try:
        return identity(mount.source) == mount.identity
    except OSError:
        return False
