"""Archives that say different things in different places, or of which two readers would make
different trees.
"""

from __future__ import annotations

import io
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest

from cloud_ml.launcher.archives import DEFAULT_LIMITS, ArchiveError, Limits, unpack
from unit.launcher.archive_makers import Member, make_tar, make_zip


def unpacked(archive: Path, limits: Limits = DEFAULT_LIMITS) -> dict[str, bytes]:
    target = archive.with_name("target")
    unpack(str(archive), str(target), limits)
    return {
        path.relative_to(target).as_posix(): path.read_bytes()
        for path in target.rglob("*")
        if path.is_file()
    }


def test_a_zip_whose_two_headers_disagree_about_the_name_is_refused(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "archive", [Member("shown.py")])
    data = archive.read_bytes()
    at = data.index(b"shown.py")
    archive.write_bytes(data[:at] + b"other.py" + data[at + 8 :])
    with pytest.raises(ArchiveError, match=r"shown\.py: damaged"):
        unpacked(archive)


def test_a_zip_that_lies_about_a_size_is_refused(tmp_path: Path) -> None:
    for lie in (3, 5000, 0xFFFFFFFE):
        archive = make_zip(tmp_path / f"archive-{lie}", [Member("a", b"x" * 1000)])
        data = bytearray(archive.read_bytes())
        central = data.index(b"PK\1\2")
        data[central + 24 : central + 28] = struct.pack("<I", lie)
        archive.write_bytes(data)
        with pytest.raises(ArchiveError, match=r"a: (damaged|what is unpacked grows over)"):
            unpack(str(archive), str(tmp_path / f"target-{lie}"))


def test_a_zip64_that_promises_more_than_there_is_costs_nothing(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "archive", [Member("a", b"x" * 1000)])
    data = bytearray(archive.read_bytes())
    central, end = data.index(b"PK\1\2"), data.index(b"PK\5\6")
    extra = struct.pack("<HHQ", 1, 8, 1 << 62)
    data[central + 24 : central + 28] = b"\xff" * 4
    data[central + 30 : central + 32] = struct.pack("<H", len(extra))
    name_ends = central + 46 + 1
    data[end + 12 : end + 16] = struct.pack("<I", end - central + len(extra))
    archive.write_bytes(data[:name_ends] + extra + data[name_ends:])
    with zipfile.ZipFile(archive) as bundle:
        assert bundle.infolist()[0].file_size == 1 << 62
    with pytest.raises(ArchiveError, match="a: what is unpacked grows over"):
        unpacked(archive)


def test_members_that_share_their_bytes_count_as_often_as_they_come_out(tmp_path: Path) -> None:
    """The bomb of overlapping entries: one compressed kernel, listed a thousand times."""
    archive = make_zip(tmp_path / "archive", [Member("k", bytes(1 << 20))])
    data = archive.read_bytes()
    central, end = data.index(b"PK\1\2"), data.index(b"PK\5\6")
    entry, times = data[central:end], 1000
    tail = bytearray(data[end:])
    tail[8:12] = struct.pack("<HH", times, times)
    tail[12:16] = struct.pack("<I", len(entry) * times)
    archive.write_bytes(data[:central] + entry * times + tail)
    with pytest.raises(ArchiveError, match=r"grows over|damaged"):
        unpacked(archive, Limits(ratio=50, ratio_from_bytes=4 << 20))
    assert sum(path.stat().st_size for path in (tmp_path / "target").rglob("*")) <= 4 << 20


def test_bytes_before_and_behind_a_zip_hide_nothing(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "archive", [Member("a", b"seen")])
    hidden = make_zip(tmp_path / "hidden", [Member("b", b"unseen")])
    archive.write_bytes(hidden.read_bytes() + archive.read_bytes())
    assert unpacked(archive) == {
        "a": b"seen"
    }  # as the list at its end says, and all zip readers take it


@pytest.mark.parametrize(
    ("records", "refusal"),
    [
        ({"path": "../planted"}, "the path has '..'"),
        ({"path": "/planted"}, "the path is absolute"),
        ({"path": "a\nb"}, "control character"),
        ({"size": "99999999999999999999"}, "harmless: (damaged|what is unpacked grows "
                                           "over)|damaged"),
        ({"size": "-1"}, "damaged|grows over"),
        ({"size": "nonsense"}, "damaged"),
        ({"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "9" * 18}, "."),
        ({"GNU.sparse.size": "9" * 18, "GNU.sparse.map": "0,1," + "9" * 18 + ",1"}, "."),
    ],
    ids=repr,
)  # fmt: skip
def test_extended_headers_cannot_say_what_headers_may_not(
    records: dict[str, str], refusal: str, tmp_path: Path
) -> None:
    archive = tmp_path / "archive"
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo("harmless")
        member.size, member.pax_headers = 4, records
        tar.addfile(member, io.BytesIO(b"1\n0\n"))
    with pytest.raises(ArchiveError, match=refusal):
        unpacked(archive)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archive", "target"]


def test_names_that_differ_by_case_or_by_normal_form_are_different_files(tmp_path: Path) -> None:
    """As on the file systems that jobs run on; nothing is merged, nothing is lost."""
    names = [
        "Task.py",
        "task.py",
        "TASK.PY",
        "caf\u00e9",
        "cafe\u0301",
        "con",
        "nul.txt",
        "a ",
        "a.",
        "\u202egnp.exe",
    ]
    for make in (make_tar, make_zip):
        (tmp_path / make.__name__).mkdir()
        archive = make(
            tmp_path / make.__name__ / "archive", [Member(name, name.encode()) for name in names]
        )
        assert unpacked(archive) == {name: name.encode() for name in names}


def test_a_list_of_very_many_members_is_cut_short(tmp_path: Path) -> None:
    archive = make_tar(
        tmp_path / "archive", [Member(f"{number}", b"") for number in range(3000)], "w:gz"
    )
    with pytest.raises(ArchiveError, match="there are more than 2000 members"):
        unpacked(archive, Limits(members=2000))
    assert len(list((tmp_path / "target").iterdir())) == 2000


def test_an_archive_in_an_archive_is_a_file(tmp_path: Path) -> None:
    content = b"x"
    for number in range(5):
        inner = make_zip(tmp_path / f"level-{number}", [Member("inner.zip", content)])
        content = inner.read_bytes()
    (tmp_path / "archive").write_bytes(content)
    assert list(unpacked(tmp_path / "archive")) == ["inner.zip"]
