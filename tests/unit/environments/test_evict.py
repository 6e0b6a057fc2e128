"""What nobody uses goes, and what somebody uses stays, whoever comes in between."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import threading
from pathlib import Path

import pytest

from cloud_ml.environments import evict, leases
from cloud_ml.environments.leases import Leases

KIB = 1024


def layer(home: Path, name: str, *, used: float, size: int = 64 * KIB) -> Path:
    folder = home / "layers" / name
    (folder / "site-packages").mkdir(parents=True)
    (folder / "site-packages" / "data").write_bytes(b"x" * size)
    held = Leases()
    assert held.take(folder)
    held.close()
    os.utime(folder.with_name(f".{name}.used"), (used, used))
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for number, name in enumerate(("old", "middle", "new")):
        layer(tmp_path, name, used=1000.0 + number)
    return tmp_path


def names(home: Path) -> set[str]:
    return {one.folder.name for one in evict.list_kept(home)}


def test_the_longest_unused_go_first_until_it_fits(home: Path) -> None:
    gone = evict.make_room(home, 150 * KIB)
    assert [one.folder.name for one in gone] == ["old"]
    assert names(home) == {"middle", "new"}
    assert evict.make_room(home, 150 * KIB) == []


def test_what_is_held_stays_even_above_the_limit(home: Path) -> None:
    held = Leases()
    assert held.take(home / "layers" / "old")
    evict.make_room(home, 1)
    assert names(home) == {"old"}
    held.close()
    evict.make_room(home, 1)
    assert names(home) == set()


def test_taking_counts_as_use(home: Path) -> None:
    held = Leases()
    assert held.take(home / "layers" / "old")
    held.close()
    assert [one.folder.name for one in evict.list_kept(home)] == ["middle", "new", "old"]


def test_what_is_gone_cannot_be_held(home: Path) -> None:
    assert evict.evict(home / "layers" / "old")
    assert not Leases().take(home / "layers" / "old")
    assert not Leases().take_all([home / "layers" / "new", home / "layers" / "old"])


def test_layers_and_trainers_of_tenants_count_too(tmp_path: Path) -> None:
    layer(tmp_path / "tenants" / "7", "a", used=1.0)
    trainer = tmp_path / "tenants" / "7" / "trainers" / "t"
    (trainer / "site").mkdir(parents=True)
    (trainer / "site" / "task.py").write_text("print()")
    assert names(tmp_path) == {"a", "t"}
    evict.make_room(tmp_path, 0)
    assert names(tmp_path) == set()


def test_a_waiting_holder_learns_that_it_came_too_late(home: Path) -> None:
    folder = home / "layers" / "old"
    taken: list[bool] = []
    with leases.alone(folder) as free:
        assert free
        late = threading.Thread(target=lambda: taken.append(Leases().take(folder)))
        late.start()
        while not _waits_for_a_lock(folder.with_name(".old.used")):
            assert late.is_alive()
        folder.rename(folder.with_name(".old.gone"))
    late.join(60)
    assert taken == [False]


def test_a_lock_on_a_file_that_was_replaced_does_not_count(home: Path) -> None:
    folder = home / "layers" / "old"
    mark = folder.with_name(".old.used")
    with mark.open() as stale:
        fcntl.flock(stale, fcntl.LOCK_EX)
        mark.unlink()
        held = Leases()
        assert held.take(folder)
        assert not evict.evict(folder)
        held.close()


def test_a_crash_in_the_middle_is_cleared(home: Path) -> None:
    (home / "layers" / "old").rename(home / "layers" / ".old.gone")
    evict.clear_leftovers(home)
    assert {
        path.name
        for path in (home / "layers").iterdir()
        if "old" in path.name and not path.name.endswith("size")
    } == set()
    assert names(home) == {"middle", "new"}


def test_holders_and_evictors_race_and_nobody_loses_what_is_held(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_use, args=(tmp_path, 60)) for _ in range(2)]
    workers += [context.Process(target=_evict, args=(tmp_path, 200)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0] * 4


def _use(home: Path, rounds: int) -> None:
    from cloud_ml.environments.files import make_once

    folder = home / "layers" / "wanted"
    for _ in range(rounds):
        held = Leases()
        while True:
            make_once(folder, lambda work: (work / "content").write_text("x"), locks=home / "locks")
            if held.take(folder):
                break
        assert (folder / "content").read_text() == "x"
        held.close()


def _evict(home: Path, rounds: int) -> None:
    for _ in range(rounds):
        evict.make_room(home, 0)


def _waits_for_a_lock(file: Path) -> bool:
    """Whether somebody on this machine waits for a lock on ``file``, as the kernel tells."""
    inode = f":{file.stat().st_ino} "
    return any(
        "->" in line and inode in line for line in Path("/proc/locks").read_text().splitlines()
    )
