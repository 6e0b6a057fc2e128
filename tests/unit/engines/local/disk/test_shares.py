from __future__ import annotations

import os
from pathlib import Path

from cloud_ml.engines.local.disk.shares import DiskShares, DiskUse, furthest_beyond_share

MIB = 2**20


def test_the_largest_gang_of_the_largest_organisation_gives_way() -> None:
    hog, small = DiskUse("a", 1, 760 * MIB), DiskUse("b", 2, 30 * MIB)
    assert furthest_beyond_share([small, hog], 100 * MIB) == hog


def test_many_small_gangs_are_one_large_organisation() -> None:
    many = [DiskUse(f"m{number}", 1, (10 + number) * MIB) for number in range(50)]
    assert furthest_beyond_share([*many, DiskUse("b", 2, 100 * MIB)], 0) == many[-1]


def test_nobody_gives_way_within_their_share() -> None:
    assert furthest_beyond_share([], 0) is None
    assert furthest_beyond_share([DiskUse("a", 1, 50 * MIB)], 0) is None
    assert furthest_beyond_share([DiskUse("a", 1, 50 * MIB), DiskUse("b", 2, 50 * MIB)], 0) is None
    assert (
        furthest_beyond_share([DiskUse("a", 1, 50 * MIB), DiskUse("b", 2, 10 * MIB)], 100 * MIB)
        is None
    )


def test_within_one_organisation_the_largest_gives_way() -> None:
    hog = DiskUse("a", 1, 90 * MIB)
    assert furthest_beyond_share([hog, DiskUse("b", 1, 10 * MIB)], 0) == hog


def test_only_gangs_whose_supervisor_lives_count(tmp_path: Path) -> None:
    folder = tmp_path / "shares"
    mine = DiskShares(folder, "mine.1", 1)
    mine.note(5)
    ready, go = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        other = DiskShares(folder, "other.1", 2)
        other.note(7)
        other.note(9)
        os.write(ready[1], b"x")
        os.read(go[0], 1)
        os._exit(int(other.asked_to_end()))
    os.read(ready[0], 1)
    assert mine.all() == [DiskUse("mine.1", 1, 5), DiskUse("other.1", 2, 9)]
    assert mine.all() == [DiskUse("mine.1", 1, 5), DiskUse("other.1", 2, 9)], (
        "looking changes nothing"
    )
    mine.ask_to_end("other.1")
    assert not mine.asked_to_end()
    os.write(go[1], b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    assert mine.all() == [DiskUse("mine.1", 1, 5)]
    mine.ask_to_end("gone.1")
    mine.all()
    assert sorted(path.name for path in folder.iterdir()) == ["mine.1"]
    mine.close()
    assert list(folder.iterdir()) == []
    for end in (*ready, *go):
        os.close(end)


def test_what_is_no_entry_is_passed_over(tmp_path: Path) -> None:
    mine = DiskShares(tmp_path / "shares", "mine.1", 1)
    mine.note(5)
    (tmp_path / "shares" / "torn").write_bytes(b"\0\xff" * 30)
    assert mine.all() == [DiskUse("mine.1", 1, 5)]
