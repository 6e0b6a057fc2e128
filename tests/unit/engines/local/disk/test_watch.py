"""How far a job can pass its disk limit, with a clock and a disk of the test's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.local.disk import watch as disk
from cloud_ml.engines.local.disk.measuring import Sum
from cloud_ml.engines.local.disk.watch import DiskWatch

MIB, GIB = 2**20, 2**30
FOLDERS = [Path("/job")]


class Disk:
    """A disk of 1 TiB: one job writes ``rate`` bytes a second, and others free ``freed`` bytes a
    second.
    """

    def __init__(self, rate: float, freed: float = 0) -> None:
        self.now = 1000.0
        self._rate, self._freed = rate, freed

    @property
    def written(self) -> int:
        return int((self.now - 1000) * self._rate)

    def free(self, _folder: Path) -> disk._Free:
        return disk._Free(
            1024 * GIB - self.written + int((self.now - 1000) * self._freed), 10**6, 10**6
        )

    def count(
        self, _folders: Iterable[str], _processes: Iterable[int], total: Sum
    ) -> Iterator[None]:
        total.size += self.written
        total.files += 1
        yield


@pytest.mark.parametrize("limit", [1, 64, 256, 1024, 64 * 1024], ids=lambda limit: f"{limit}M")
@pytest.mark.parametrize("rate", [0.05, 1, 5, 16], ids=lambda rate: f"{rate} GiB/s")
def test_a_job_passes_its_limit_by_128_mib_at_most(
    monkeypatch: pytest.MonkeyPatch, rate: float, limit: int
) -> None:
    """A job of four threads passed its limit by 258 to 414 MiB."""
    assert _beyond(monkeypatch, Disk(rate * GIB), limit * MIB) <= 128 * MIB


@pytest.mark.parametrize("limit", [64, 1024], ids=lambda limit: f"{limit}M")
def test_what_others_free_hides_hardly_anything(
    monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    assert _beyond(monkeypatch, Disk(2 * GIB, freed=2 * GIB), limit * MIB) <= 128 * MIB


def test_a_job_that_writes_nothing_is_looked_at_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    used = Disk(0)
    watch = _watch(monkeypatch, used, 64 * GIB)
    looks = 0
    while used.now < 1060:
        used.now = watch.next_look
        assert watch.look(lambda: ()) is None
        looks += 1
    assert looks <= 60, "more than once a second"


class Filled(Disk):
    """Another one fills the disk after 7.05 s; the job writes a little before that, or after it."""

    def __init__(self, wrote_at: float) -> None:
        super().__init__(0)
        self._wrote_at = 1000 + wrote_at

    @property
    def written(self) -> int:
        return 40_000 if self.now > self._wrote_at else 4000

    def free(self, _folder: Path) -> disk._Free:
        return disk._Free(GIB // 4 if self.now > 1007.05 else 1024 * GIB, 10**6, 10**6)


@pytest.mark.parametrize(("wrote_at", "ends"), [(7.03, False), (10.0, True)])
def test_the_reserve_is_taken_from_who_grows_while_the_disk_is_full(
    monkeypatch: pytest.MonkeyPatch, wrote_at: float, ends: bool
) -> None:
    """A job that had written a little just before somebody else filled the disk was killed."""
    used = Filled(wrote_at)
    watch = _watch(monkeypatch, used, GIB, reserve=GIB)
    verdicts = []
    while used.now < 1030 and not verdicts:
        used.now = max(used.now, watch.next_look)
        verdicts += [verdict for verdict in [watch.look(lambda: ())] if verdict is not None]
    assert bool(verdicts) == ends


def _watch(monkeypatch: pytest.MonkeyPatch, used: Disk, limit: int, reserve: int = 0) -> DiskWatch:
    monkeypatch.setattr("cloud_ml.engines.local.disk.watch.time.monotonic", lambda: used.now)
    monkeypatch.setattr(disk._Free, "on", used.free)
    monkeypatch.setattr(disk, "count", used.count)
    return DiskWatch(FOLDERS, limit=limit, reserve=reserve, period_s=5.0)


def _beyond(monkeypatch: pytest.MonkeyPatch, used: Disk, limit: int) -> int:
    """By how many bytes the job is beyond its limit when the watch ends it."""
    watch = _watch(monkeypatch, used, limit)
    for _ in range(1_000_000):
        used.now = max(used.now, watch.next_look)
        if verdict := watch.look(lambda: ()):
            assert verdict.reason is Reason.DISK_QUOTA
            return used.written - limit
    raise AssertionError("it was never ended")
