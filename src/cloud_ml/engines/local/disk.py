"""What a gang keeps on the disk: measured now and then, and ended when it is too much.

File systems with quotas of their own are rare, so this looks: at the folders of the attempt, and at files
that were deleted but are still open. What is written between two looks may go beyond the limit. Buckets are
not looked at; they are the organisation's, with a quota of their own.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from cloud_ml.domain.jobs.reasons import Reason
from cloud_ml.engines.local.limits import Verdict
from cloud_ml.models.common import format_memory

_BLOCK = 512
_SHARE_OF_TIME = 20
_MOST_PROCESSES = 500


class DiskWatch:
    """Looks at what a gang has on the disk.

    Args:
        folders: What belongs to the attempt alone.
        limit: The most it may take, in bytes; ``None`` for no limit.
        reserve: What must stay free on the file system, in bytes: a gang that grows when there is less ends,
            before everybody else's work fails.
        period_s: How often to look; less often where one look takes long.
    """

    def __init__(self, folders: Sequence[Path], *, limit: int | None, reserve: int, period_s: float) -> None:
        self._folders = folders
        self._limit = limit
        self._reserve = reserve
        self._period_s = period_s
        self._before: int | None = None
        self.next_look = time.monotonic() + period_s if limit is not None or reserve else float("inf")

    def look(self, processes: Iterable[int]) -> Verdict | None:
        """Measure; a verdict if it is too much. ``processes`` are those whose open files count."""
        began = time.monotonic()
        scarce = self._reserve > 0 and _free(self._folders[0]) < self._reserve
        verdict = None
        if self._limit is not None or scarce:
            size = measured(self._folders, processes)
            verdict = self._judge(size, scarce=scarce)
            self._before = size
        now = time.monotonic()
        self.next_look = now + max(self._period_s, _SHARE_OF_TIME * (now - began))
        return verdict

    def _judge(self, size: int, *, scarce: bool) -> Verdict | None:
        if self._limit is not None and size > self._limit:
            return Verdict(Reason.DISK_QUOTA, f"DiskQuotaExceeded: {format_memory(self._limit)} exceeded")
        if scarce and self._before is not None and size > self._before:
            left = format_memory(self._reserve)
            return Verdict(
                Reason.DISK_QUOTA,
                f"DiskQuotaExceeded: less than {left} is left on the server's disk, and the job's files have grown to "
                f"{format_memory(size)}",
            )
        return None


def measured(folders: Iterable[Path], processes: Iterable[int]) -> int:
    """Bytes on the disk below ``folders`` and in deleted files that ``processes`` hold open.

    A tree that its owner changes meanwhile is measured as well as it goes; links are not followed, and a
    file of several names counts once.
    """
    seen: set[tuple[int, int]] = set()
    total = 0
    for facts in itertools.chain(_below(folders), _deleted(processes)):  # one by one: there may be millions
        if facts.st_nlink != 1 and not stat.S_ISDIR(facts.st_mode):
            if (identity := (facts.st_dev, facts.st_ino)) in seen:
                continue
            seen.add(identity)
        total += facts.st_blocks * _BLOCK
    return total


def _below(folders: Iterable[Path]) -> Iterator[os.stat_result]:
    waiting = [str(folder) for folder in folders]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    yield entry.stat(follow_symlinks=False)


def _deleted(processes: Iterable[int]) -> Iterator[os.stat_result]:
    for number, pid in enumerate(processes):
        if number == _MOST_PROCESSES:
            return
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208
                with contextlib.suppress(OSError):
                    facts = os.stat(f"/proc/{pid}/fd/{name}")  # noqa: PTH116 - the file, not its name
                    if facts.st_nlink == 0:
                        yield facts


def _free(folder: Path) -> int:
    try:
        facts = os.statvfs(folder)
    except OSError:
        return 0
    return facts.f_bavail * facts.f_frsize
