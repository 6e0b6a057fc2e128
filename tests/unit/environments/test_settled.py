"""What was built before a power cut is not trusted unless it had time to reach the disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cloud_ml.environments import evict
from cloud_ml.environments.files import make_once
from cloud_ml.environments.packages import settled


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """With a layer of everybody's and one of a tenant's, and what uv has kept of both."""
    for part in (tmp_path, tmp_path / "tenants" / "7"):
        make_once(
            part / "layers" / "abc",
            lambda work: (work / "content").write_text("x"),
            locks=part / "locks",
        )
        (part / "uv-cache").mkdir()
    return tmp_path


def there(home: Path) -> list[str]:
    return sorted(
        str(path.relative_to(home)) for path in home.glob("**/abc") if "locks" not in path.parts
    )


def marks(home: Path) -> list[str]:
    return sorted(path.name for path in home.glob("**/.abc.*") if "locks" not in path.parts)


def test_what_a_power_cut_may_have_torn_is_built_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settled, "boot_id", lambda: b"another")
    evict.clear_leftovers(home)
    assert there(home) == []
    assert marks(home) == []
    assert [path.name for path in home.glob("**/uv-cache")] == []
    again = make_once(
        home / "layers" / "abc",
        lambda work: (work / "content").write_text("y"),
        locks=home / "locks",
    )
    evict.clear_leftovers(home)
    assert (again / "content").read_text() == "y"


def test_a_mark_that_has_lost_its_words_tells_of_a_power_cut(home: Path) -> None:
    for mark in home.glob("**/.abc.unsettled"):
        mark.write_bytes(b"")
    evict.clear_leftovers(home)
    assert there(home) == []
    assert marks(home) == []


def test_the_name_of_a_mark_is_on_the_disk_before_the_folder_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named: list[bool] = []
    target, real = tmp_path / "layers" / "abc", os.fsync

    def fsync(descriptor: int) -> None:
        real(descriptor)
        assert os.path.samestat(os.fstat(descriptor), target.parent.stat())
        assert (target.parent / ".abc.unsettled").exists()
        named.append(target.exists())

    monkeypatch.setattr(os, "fsync", fsync)
    make_once(target, lambda work: None, locks=tmp_path / "locks")
    assert named == [False]
    assert target.exists()


def test_a_server_that_starts_again_keeps_what_is_there(home: Path) -> None:
    evict.clear_leftovers(home)
    assert there(home) == ["layers/abc", "tenants/7/layers/abc"]
    assert len(list(home.glob("**/uv-cache"))) == 2


def test_what_has_settled_is_kept(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert settled.settle(home) == 0  # it is too young
    for mark in home.glob("**/.abc.unsettled"):
        os.utime(mark, (0, 0))
    assert settled.settle(home) == 2
    assert marks(home) == []
    monkeypatch.setattr(settled, "boot_id", lambda: b"another")
    evict.clear_leftovers(home)
    assert there(home) == ["layers/abc", "tenants/7/layers/abc"]


def test_a_cut_while_it_settles_or_is_built_leaves_it_in_doubt(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(_: Path) -> None:
        raise OSError("the power is cut")

    for mark in home.glob("**/.abc.unsettled"):
        os.utime(mark, (0, 0))
    with monkeypatch.context() as patched:
        patched.setattr(settled, "_force_all", cut)
        with pytest.raises(OSError, match="power"):
            settled.settle(home)
    with pytest.raises(OSError, match="power"):
        make_once(home / "layers" / "new", cut, locks=home / "locks")
    monkeypatch.setattr(settled, "boot_id", lambda: b"another")
    assert sorted(folder.name for folder, _ in settled.doubtful(home)) == ["abc", "abc", "new"]
    evict.clear_leftovers(home)
    assert there(home) == []
    assert list(settled.doubtful(home)) == []


def test_what_settles_while_it_is_built_is_marked_again(tmp_path: Path) -> None:
    def build(work: Path) -> None:
        assert settled.settle(tmp_path, ripe_s=-1.0) == 1
        (work / "late").touch()

    make_once(tmp_path / "layers" / "abc", build, locks=tmp_path / "locks")
    assert marks(tmp_path) == [".abc.unsettled"]
