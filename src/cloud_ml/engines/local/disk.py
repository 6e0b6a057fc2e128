"""What a gang keeps on the disk: measured now and then, and ended when it is too much.

File systems with quotas of their own are rare, so this looks: at the folders of the attempt, and at files
that were deleted but are still used (``measuring``). What is written between two looks may go beyond the limit.
In between, the free space of the file system is asked for, which costs nothing: where it fell by as much as the
gang has left, the gang is measured at once. Buckets are not looked at; they are the organisation's, with a quota
of their own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cloud_ml.domain.jobs.reasons import Reason
from cloud_ml.engines.local.limits import Verdict
from cloud_ml.engines.local.measuring import Hidden, Sum, count
from cloud_ml.models.common import format_memory

_SHARE_OF_TIME, _SHARE_IN_HASTE = 20, 5
_SLICE_S, _STEPS = 0.05, 200
_GLANCE_S = 1.0
_SCARCE_FILES = 100


@dataclass(frozen=True)
class _Free:
    size: int
    files: int
    all_files: int

    @classmethod
    def on(cls, folder: Path) -> _Free:
        try:
            facts = os.statvfs(folder)
        except OSError:
            return cls(0, 0, 0)
        return cls(facts.f_bavail * facts.f_frsize, facts.f_ffree, facts.f_files)


class DiskWatch:
    """Looks at what a gang has on the disk.

    Args:
        folders: What belongs to the attempt alone.
        limit: The most it may take, in bytes; ``None`` for no limit.
        reserve: What must stay free on the file system, in bytes: a gang that grows when there is less ends,
            before everybody else's work fails.
        period_s: How often to look; less often where one look takes long.
        files: The most files and folders it may keep; 0 for no limit.
    """

    def __init__(
        self, folders: Sequence[Path], *, limit: int | None, reserve: int, period_s: float, files: int = 0
    ) -> None:
        self._folders = folders
        self._limit = limit
        self._reserve = reserve
        self._files = files
        self._period_s = period_s
        self._before: Sum | None = None
        self._sum = Sum()
        self._counting: Iterator[None] | None = None
        self._hasty = False
        self._spent_s = 0.0
        self._free: _Free | None = None
        now = time.monotonic()
        self._next_measure = now + period_s
        self.next_look = self._next_glance(now) if limit is not None or reserve or files else float("inf")

    def look(self, processes: Callable[[], Iterable[int]]) -> Verdict | None:
        """Measure for a moment, if it is time to; a verdict if it is too much.

        ``processes`` gives those whose open files count.
        """
        began = time.monotonic()
        free = _Free.on(self._folders[0])
        scarce = self._scarce(free)
        if self._counting is None and self._due(began, free, scarce=scarce):
            self._sum, self._free = Sum(), free
            self._counting = count(map(str, self._folders), processes(), self._sum)
        if self._counting is None:
            self.next_look = self._next_glance(began)
            return None
        try:
            done = self._count_on(began + _SLICE_S)
        except Hidden as hidden:
            return Verdict(Reason.DISK_QUOTA, f"DiskQuotaExceeded: the job's files cannot be measured: {hidden}")
        verdict = self._judge(scarce=scarce, done=done)
        now = time.monotonic()
        self._spent_s += now - began
        if done:
            self._next_measure = now + max(self._period_s, _SHARE_OF_TIME * self._spent_s)
            self.next_look = max(self._next_glance(now), now + _SHARE_IN_HASTE * self._spent_s)
            self._before, self._counting, self._spent_s = self._sum, None, 0.0
        else:
            self.next_look = now + (_SHARE_IN_HASTE if self._hasty or scarce else _SHARE_OF_TIME) * (now - began)
        return verdict

    def _next_glance(self, now: float) -> float:
        return min(self._next_measure, now + _GLANCE_S) if self._limit is not None else self._next_measure

    def _scarce(self, free: _Free) -> bool:
        few = free.all_files > 0 and free.files < free.all_files // _SCARCE_FILES
        return self._reserve > 0 and (free.size < self._reserve or few)

    def _due(self, now: float, free: _Free, *, scarce: bool) -> bool:
        """Whether to begin measuring: it is time, or the disk has lost what the gang had left."""
        known, before = self._before or Sum(), self._free or free
        if self._free is None:
            self._free = free
        self._hasty = self._limit is not None and before.size - free.size > self._limit - known.size
        many = self._files > 0 and before.files - free.files > self._files - known.files
        timely = now >= self._next_measure
        if timely:
            self._next_measure = now + self._period_s
        return self._hasty or many or (timely and (self._limit is not None or scarce))

    def _count_on(self, until: float) -> bool:
        assert self._counting is not None
        while time.monotonic() < until:
            for _ in range(_STEPS):
                try:
                    next(self._counting)
                except StopIteration:
                    return True
        return False

    def _judge(self, *, scarce: bool, done: bool) -> Verdict | None:
        if self._limit is not None and self._sum.size > self._limit:
            return Verdict(Reason.DISK_QUOTA, f"DiskQuotaExceeded: {format_memory(self._limit)} exceeded")
        if self._files and self._sum.files > self._files:
            return Verdict(Reason.DISK_QUOTA, f"DiskQuotaExceeded: more than {self._files} files and folders")
        before = self._before
        if done and scarce and before is not None:
            if self._sum.size > before.size:
                left, grown = format_memory(self._reserve), format_memory(self._sum.size)
                return Verdict(
                    Reason.DISK_QUOTA,
                    f"DiskQuotaExceeded: less than {left} is left on the server's disk, and the job's files have "
                    f"grown to {grown}",
                )
            if self._sum.files > before.files and _Free.on(self._folders[0]).size >= self._reserve:
                return Verdict(
                    Reason.DISK_QUOTA,
                    f"DiskQuotaExceeded: the server's disk can hold hardly any more files, and the job has made "
                    f"more: {self._sum.files} now",
                )
        return None


def measured(folders: Iterable[Path], processes: Iterable[int]) -> int:
    """Bytes on the disk below ``folders`` and in deleted files that ``processes`` still use."""
    total = Sum()
    for _ in count(map(str, folders), processes, total):
        pass
    return total.size
