"""What honest archives become, and what damaged ones lead to."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cloud_ml.launcher import archives
from cloud_ml.launcher.archives import ArchiveError, Limits, unpack
from unit.launcher.archive_makers import Member, hard_link, make_tar, make_zip, naive_tar, symlink

HONEST = [
    Member("./"),
    Member("pkg/__init__.py", b""),
    Member("pkg/run.sh", b"#!/bin/sh\n", mode=0o4755),
    Member("pkg/données.txt", b"x" * 100_000),
    symlink("pkg/latest", "données.txt"),
    symlink("pkg/deep/up", "../../pkg"),
]
MAKERS: dict[str, Callable[[Path], Path]] = {
    "tar": lambda path: make_tar(path, HONEST),
    "tar.gz": lambda path: make_tar(path, HONEST, "w:gz"),
    "tar.bz2": lambda path: make_tar(path, HONEST, "w:bz2"),
    "tar.xz": lambda path: make_tar(path, HONEST, "w:xz"),
    "zip": lambda path: make_zip(path, HONEST[1:]),
}


@pytest.fixture(params=MAKERS)
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    # The name says nothing: the content tells the format.
    return MAKERS[request.param](tmp_path / "trainer")


def test_what_comes_out(archive: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    assert unpack(str(archive), str(target)) == (3, 2, 2, 100_010, "")
    assert (target / "pkg/données.txt").read_bytes() == b"x" * 100_000
    assert (target / "pkg/__init__.py").read_bytes() == b""
    assert (target / "pkg/latest").readlink() == Path("données.txt")
    assert (target / "pkg/deep/up/run.sh").read_bytes() == b"#!/bin/sh\n"


def test_modes_are_ours(archive: Path, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        unpack(str(archive), str(tmp_path / "out"))
    finally:
        os.umask(before)
    modes = {
        p.name: p.stat().st_mode & 0o7777
        for p in (tmp_path / "out/pkg").iterdir()
        if not p.is_symlink()
    }
    assert modes == {"__init__.py": 0o644, "run.sh": 0o755, "données.txt": 0o644, "deep": 0o755}


def test_special_bits_would_come_out_of_naive_code(tmp_path: Path) -> None:
    naive_tar(make_tar(tmp_path / "t", HONEST), tmp_path / "out")
    assert (tmp_path / "out/pkg/run.sh").stat().st_mode & 0o7777 == 0o4755


def test_a_cut_off_archive_is_an_error_wherever_the_cut_is(archive: Path, tmp_path: Path) -> None:
    whole = archive.read_bytes()
    for number, length in enumerate(
        sorted({0, 1, 5, *range(20, len(whole) - 1, max(len(whole) // 23, 1))})
    ):
        archive.write_bytes(whole[:length])
        if whole[length:].strip(b"\0"):  # what is cut off is more than padding
            with pytest.raises(ArchiveError, match="damaged, cut off or no tar"):
                unpack(str(archive), str(tmp_path / f"out{number}"))


@pytest.mark.parametrize("kind", ["tar.gz", "tar.bz2", "tar.xz", "zip"])
def test_a_flipped_bit_in_the_data_is_an_error(kind: str, tmp_path: Path) -> None:
    members = [Member("noise", os.urandom(50_000)), Member("more", os.urandom(10))]
    path = tmp_path / "t"
    make_zip(path, members) if kind == "zip" else make_tar(path, members, "w:" + kind[4:])
    data = bytearray(path.read_bytes())
    data[25_000] ^= 4
    path.write_bytes(data)
    with pytest.raises(ArchiveError, match="damaged"):
        unpack(str(path), str(tmp_path / "out"))


def test_a_broken_header_in_the_middle_does_not_pass_for_the_end(tmp_path: Path) -> None:
    path = make_tar(tmp_path / "t", [Member("first"), Member("second"), Member("third")])
    data = bytearray(path.read_bytes())
    data[1024] ^= 1
    path.write_bytes(data)
    naive_tar(path, tmp_path / "naive")
    assert [p.name for p in (tmp_path / "naive").iterdir()] == ["first"]  # and not a word of it
    with pytest.raises(ArchiveError, match="after first: damaged"):
        unpack(str(path), str(tmp_path / "out"))


def test_something_else_is_named_with_what_is_known(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(b"import sys\n" * 1000)
    with pytest.raises(ArchiveError, match=r"no tar, tar\.gz, tar\.bz2, tar\.xz or zip"):
        unpack(str(path), str(tmp_path / "out"))


@pytest.mark.parametrize("make", [make_tar, make_zip])
def test_an_empty_archive_is_an_empty_folder(make: Callable[..., Path], tmp_path: Path) -> None:
    assert unpack(str(make(tmp_path / "t", [])), str(tmp_path / "out")) == (0, 0, 0, 0, "")
    assert list((tmp_path / "out").iterdir()) == []


def test_the_target_must_be_empty(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "pkg").symlink_to("/tmp")
    with pytest.raises(ArchiveError, match="is not empty"):
        unpack(str(archive), str(tmp_path / "out"))


def test_the_last_of_two_files_wins_and_is_never_written_through_a_link(tmp_path: Path) -> None:
    path = make_tar(
        tmp_path / "t",
        [
            Member("victim", b"old"),
            symlink("l", "victim"),
            Member("l", b"new"),
            Member("l", b"newer"),
        ],
    )
    naive_tar(path, tmp_path / "naive")
    assert (tmp_path / "naive/victim").read_bytes() == b"newer"
    unpack(str(path), str(tmp_path / "out"))
    assert (tmp_path / "out/victim").read_bytes() == b"old"
    assert (tmp_path / "out/l").read_bytes() == b"newer"
    assert not (tmp_path / "out/l").is_symlink()


def test_a_replaced_file_keeps_its_other_names(tmp_path: Path) -> None:
    path = make_tar(tmp_path / "t", [Member("a", b"1"), hard_link("b/c", "a"), Member("a", b"2")])
    assert unpack(str(path), str(tmp_path / "out")).files == 2
    assert (tmp_path / "out/b/c").read_bytes() == b"1"
    assert (tmp_path / "out/a").read_bytes() == b"2"


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ([Member("a"), Member("a/")], "a: a is a file"),
        ([Member("a"), Member("a/b")], "a/b: a is a file"),
        ([Member("a/"), Member("a")], "a: a folder of that name came before"),
        ([Member("a/b"), symlink("a", "b")], "a: a folder of that name came before"),
        ([Member(".")], "the root can only be a folder"),
    ],
)
def test_folders_and_files_do_not_replace_each_other(
    members: list[Member], words: str, tmp_path: Path
) -> None:
    with pytest.raises(ArchiveError, match=words):
        unpack(str(make_tar(tmp_path / "t", members)), str(tmp_path / "out"))


def test_names_that_are_no_utf8_survive(tmp_path: Path) -> None:
    unpack(str(make_tar(tmp_path / "t", [Member("caf\udce9")])), str(tmp_path / "out"))
    assert [os.fsencode(path.name) for path in (tmp_path / "out").iterdir()] == [b"caf\xe9"]


class TestStrip:
    def unpacked(self, tmp_path: Path, members: list[Member]) -> archives.Summary:
        return unpack(str(make_tar(tmp_path / "t", members)), str(tmp_path / "out"), strip=True)

    def tree(self, tmp_path: Path) -> list[str]:
        return sorted(str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*"))

    def test_a_single_top_folder_is_left_out(self, tmp_path: Path) -> None:
        members = [
            Member("x-1.0/setup.py"),
            Member("x-1.0/x/a.py"),
            symlink("x-1.0/x/b.py", "../setup.py"),
        ]
        assert self.unpacked(tmp_path, members) == (2, 1, 1, 14, "x-1.0")
        assert self.tree(tmp_path) == ["setup.py", "x", "x/a.py", "x/b.py"]
        assert (tmp_path / "out/x/b.py").read_bytes() == b"content"

    def test_a_child_may_have_the_name_of_the_top(self, tmp_path: Path) -> None:
        assert self.unpacked(tmp_path, [Member("x/x/x"), Member("x/unpacked-0")]).stripped == "x"
        assert self.tree(tmp_path) == ["unpacked-0", "x", "x/x"]

    @pytest.mark.parametrize("members", [[Member("a/b"), Member("c")], [Member("a")], []])
    def test_anything_else_stays_as_it_is(self, members: list[Member], tmp_path: Path) -> None:
        assert self.unpacked(tmp_path, members).stripped == ""

    def test_a_link_out_of_the_top_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ArchiveError, match="x/l: the link leads out of x"):
            self.unpacked(tmp_path, [Member("x/a"), symlink("x/l", "../x/a")])


@pytest.mark.parametrize(
    ("limits", "members", "words"),
    [
        (
            Limits(members=2),
            [Member("a"), Member("b"), Member("c")],
            "c: there are more than 2 members",
        ),
        (Limits(members=2), [Member("a/"), Member("a/"), Member("a/")], "more than 2 members"),
        (Limits(members=3), [Member("a/b/c/d")], "more than 3 members"),
        (
            Limits(total_bytes=13),
            [Member("a"), Member("b")],
            "b: what is unpacked grows over 13 bytes",
        ),
        (Limits(name_bytes=4), [Member("a/b/é")], "over 4 bytes"),
        (Limits(), [Member("é" * 128)], "a name in it over 255"),
        (Limits(depth=3), [Member("a/b/c/d")], "deeper than 3"),
    ],
)
@pytest.mark.parametrize("make", [make_tar, make_zip])
def test_caps(
    limits: Limits, members: list[Member], words: str, make: Callable[..., Path], tmp_path: Path
) -> None:
    path = make(tmp_path / "t", members)
    with pytest.raises(ArchiveError, match=words):
        unpack(str(path), str(tmp_path / "out"), limits)


def test_the_allowance_follows_the_size_of_the_archive() -> None:
    limits = Limits(total_bytes=1000, ratio=10, ratio_from_bytes=100)
    assert [limits.allowance(size) for size in (0, 10, 11, 100, 200)] == [100, 100, 110, 1000, 1000]


def test_the_command_prints_a_summary_or_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = (
        make_tar(tmp_path / "g", [Member("top/a")]),
        make_tar(tmp_path / "b", [Member("../a")]),
    )
    assert archives.main(["--strip", str(good), str(tmp_path / "out")]) == 0
    assert json.loads(capsys.readouterr().out)["stripped"] == "top"
    assert archives.main([str(bad), str(tmp_path / "out2")]) == 1
    assert capsys.readouterr().err == "../a: the path has '..'\n"
