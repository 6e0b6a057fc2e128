"""What a gang keeps on the disk: measured now and then, and ended when it is too much.

File systems with quotas of their own are rare, so this looks: at the folders of the attempt, and at
files that were deleted but are still used (``measuring``). In between, the free space of the file
system is asked for, which costs microseconds: where it fell by as much as the gang has left, the
gang is measured at once. It is asked for so often that even a gang that writes at ``_FASTEST``
cannot go far beyond its limit meanwhile. Buckets are not looked at; they are the organisation's,
with a quota of their own.

A gang with few files is measured as often, since others may free as much as it writes. One with
many files can pass its limit by what it writes while it is measured: a look takes a twentieth of
the time at most.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.local.disk.measuring import Hidden, Sum, count
from cloud_ml.engines.local.disk.shares import DiskShares, furthest_beyond_share
from cloud_ml.engines.local.processes.limits import Verdict
from cloud_ml.models.common import format_memory

_SHARE_OF_TIME, _SHARE_IN_HASTE = 20, 5
_SLICE_S, _STEPS = 0.05, 200
_GLANCE_S = 1.0
_FASTEST = 16 * 2**30
"""Bytes that a gang is taken to write in a second, which is what memory takes for the page cache
from several threads. The free space is asked for so often.
"""
_MEASURED_FASTEST = 2 * 2**30
"""The same for measuring, which costs more and is only to find what others free meanwhile."""
_LEAST_GLANCE_S, _LEAST_MEASURE_S = 0.005, 0.025
_SCARCE_GLANCE_S = 0.1
_NOTICED = 16
"""A loss of more than this part of the reserve, on a nearly full disk, is reason to measure at
once. Growth of no more than that is held against a gang only if it happened on such a disk.
"""
_EMERGENCY = 4
"""Less than this part of the reserve: nobody waits for news of the other gangs."""
_SCARCE_FILES = 100


@dataclass(frozen=True)
class _Free:
    size: int
    files: int
    all_files: int

    @classmethod
    def on(cls, folder: Path) -> _Free:
        """What is free where ``folder`` is, or is going to be."""
        for place in (folder, *folder.parents):
            with contextlib.suppress(OSError):
                facts = os.statvfs(place)
                return cls(facts.f_bavail * facts.f_frsize, facts.f_ffree, facts.f_files)
        return cls(0, 0, 0)


class DiskWatch:
    """Looks at what a gang has on the disk.

    Args:
        folders: What belongs to the attempt alone.
        limit: The most it may take, in bytes; ``None`` for no limit.
        reserve: What must stay free on the file system, in bytes: a gang that grows when there is
            less ends, before everybody else's work fails.
        period_s: How often to look; less often where one look takes long.
        files: The most files and folders it may keep; 0 for no limit.
        shares: What all gangs of the machine take; without it the gang that grows is the one that
            ends.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        *,
        limit: int | None,
        reserve: int,
        period_s: float,
        files: int = 0,
        shares: DiskShares | None = None,
    ) -> None:
        self._folders = folders
        self._limit = limit
        self._reserve = reserve
        self._files = files
        self._period_s = period_s
        self._before: Sum | None = None
        self._before_scarce = False
        """Whether the disk was nearly full already when ``_before`` was measured."""
        self._counts_scarce = False
        self._sum = Sum()
        self._counting: Iterator[None] | None = None
        self._hasty = False
        self._spent_s = 0.0
        self._free = _Free.on(folders[0])
        """What was free when the gang was measured last; at first, before it wrote anything."""
        self._shares = shares
        self._scarce_since: float | None = None
        self.gave_way = False
        """Whether the gang was ended for the reserve: what it keeps is to go, too."""
        now = time.monotonic()
        self._next_measure = now + self._pause()
        self.next_look = (
            self._next_glance(now, self._free)
            if limit is not None or reserve or files
            else float("inf")
        )

    def look(self, processes: Callable[[], Iterable[int]]) -> Verdict | None:
        """Measure for a moment, if it is time to; a verdict if it is too much.

        ``processes`` gives those whose open files count.
        """
        began = time.monotonic()
        free = _Free.on(self._folders[0])
        scarce = self._scarce(free)
        if scarce and self._shares is not None and self._shares.asked_to_end():
            return self._give_way("the most beyond its share")
        self._note_scarcity(began, scarce=scarce)
        if self._counting is None and self._due(began, free, scarce=scarce):
            self._sum, self._free, self._counts_scarce = Sum(), free, scarce
            self._counting = count(map(str, self._folders), processes(), self._sum)
        if self._counting is None:
            self.next_look = self._next_glance(began, free)
            return None
        try:
            done = self._count_on(began + _SLICE_S)
        except Hidden as hidden:
            return Verdict(
                Reason.DISK_QUOTA,
                f"DiskQuotaExceeded: the job's files cannot be measured: {hidden}",
            )
        verdict = self._judge(scarce=scarce, done=done)
        now = time.monotonic()
        self._spent_s += now - began
        if done:
            first = self._counts_scarce and not self._before_scarce  # what comes is held against it
            pause = min(self._pause(), _GLANCE_S) if first else self._pause()
            self._next_measure = now + max(pause, _SHARE_OF_TIME * self._spent_s)
            self.next_look = max(
                self._next_glance(now, free), now + _SHARE_IN_HASTE * self._spent_s
            )
            if self._shares is not None:
                self._shares.note(self._sum.size)
            self._before, self._counting, self._spent_s = self._sum, None, 0.0
            self._before_scarce = self._counts_scarce
        else:
            self.next_look = now + (
                _SHARE_IN_HASTE if self._hasty or scarce else _SHARE_OF_TIME
            ) * (now - began)
        return verdict

    @property
    def size(self) -> int:
        """Bytes that the gang kept when it was measured last; 0 where it never was."""
        return self._before.size if self._before is not None and not self.gave_way else 0

    def close(self) -> None:
        """Count among the gangs of the machine no more."""
        if self._shares is not None:
            self._shares.close()

    def _pause(self) -> float:
        """How long what was just measured is good for: others free room meanwhile, which free
        space does not tell.
        """
        if self._limit is None:
            return self._period_s
        grows = self._before is None or self._sum.size > self._before.size
        least = _LEAST_MEASURE_S if grows else _SCARCE_GLANCE_S
        return min(self._period_s, max(least, (self._limit - self._sum.size) / _MEASURED_FASTEST))

    def _next_glance(self, now: float, free: _Free) -> float:
        """When to look again: before a gang that writes as fast as it can is far beyond its
        limit.
        """
        period = self._period_s
        if self._limit is not None:
            known = self._before or Sum()
            # This gang may have written everything that the disk has lost since the last
            # measurement.
            lost = max(0, self._free.size - free.size)
            period = max(_LEAST_GLANCE_S, (self._limit - known.size - lost) / _FASTEST)
        if self._reserve:
            # Look again before more than half of the reserve can be used up.
            period = min(period, max(_SCARCE_GLANCE_S, (free.size - self._reserve // 2) / _FASTEST))
        if self._limit is not None or self._reserve:
            period = min(period, _GLANCE_S)
        return min(self._next_measure, now + period)

    def _note_scarcity(self, now: float, *, scarce: bool) -> None:
        """When the disk becomes scarce, every gang is measured, so that all are known when one
        has to give way.
        """
        if not scarce:
            self._scarce_since = None
        elif self._scarce_since is None:
            self._scarce_since = now
            self._next_measure = now

    def _scarce(self, free: _Free) -> bool:
        few = free.all_files > 0 and free.files < free.all_files // _SCARCE_FILES
        return self._reserve > 0 and (free.size < self._reserve or few)

    def _due(self, now: float, free: _Free, *, scarce: bool) -> bool:
        """Whether to begin measuring: it is time, or the disk has lost what the gang had left."""
        known, before = self._before or Sum(), self._free
        self._hasty = self._limit is not None and before.size - free.size > self._limit - known.size
        lost = self._reserve > 0 and scarce and before.size - free.size > self._reserve // _NOTICED
        many = self._files > 0 and before.files - free.files > self._files - known.files
        timely = now >= self._next_measure
        if timely:
            self._next_measure = now + self._period_s
        return self._hasty or many or lost or (timely and (self._limit is not None or scarce))

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
        # A partial sum can only grow. If it exceeds the limit already, there is no need to finish
        # counting.
        if self._limit is not None and self._sum.size > self._limit:
            return Verdict(
                Reason.DISK_QUOTA, f"DiskQuotaExceeded: {format_memory(self._limit)} exceeded"
            )
        if self._files and self._sum.files > self._files:
            return Verdict(
                Reason.DISK_QUOTA, f"DiskQuotaExceeded: more than {self._files} files and folders"
            )
        before = self._before
        if done and scarce and before is not None:
            grown = self._sum.size - before.size
            if grown > (0 if self._before_scarce else self._reserve // _NOTICED):
                return self._for_the_reserve()
            if self._sum.files > before.files and _Free.on(self._folders[0]).size >= self._reserve:
                return Verdict(
                    Reason.DISK_QUOTA,
                    "DiskQuotaExceeded: the server's disk can hold hardly any more files, and the "
                    f"job has made more: {self._sum.files} now",
                )
        return None

    def _for_the_reserve(self) -> Verdict | None:
        """The gang has grown on a nearly full disk: it ends, or another one that is further
        beyond its share.
        """
        if self._shares is None:
            return self._give_way("and they have grown")
        free = _Free.on(self._folders[0]).size
        self._shares.note(self._sum.size)
        since = self._scarce_since if self._scarce_since is not None else time.monotonic()
        if free > self._reserve // _EMERGENCY and time.monotonic() < since + _GLANCE_S:
            return None  # the others are being measured
        found = furthest_beyond_share(self._shares.all(), free - self._reserve)
        if found is None or self._shares.is_own(found):
            return self._give_way("the most beyond its share" if found else "and they have grown")
        self._shares.ask_to_end(found.gang)
        return None

    def _give_way(self, why: str) -> Verdict:
        self.gave_way = True
        size = (self._sum if self._counting is not None else self._before or self._sum).size
        left = format_memory(self._reserve)
        return Verdict(
            Reason.DISK_QUOTA,
            f"DiskQuotaExceeded: less than {left} is left on the server's disk, and the job's "
            f"files take {format_memory(size)}, {why}",
        )


def measure_use(folders: Iterable[Path], processes: Iterable[int]) -> int:
    """Bytes on the disk below ``folders`` and in deleted files that ``processes`` still use."""
    total = Sum()
    for _ in count(map(str, folders), processes, total):
        pass
    return total.size
