"""Attacks on whoever unpacks. Each is first shown to work on naive code."""

from __future__ import annotations

import os
import re
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cloud_ml.launcher.archives import ArchiveError, Limits, unpack
from unit.launcher.archive_makers import (
    EVIL,
    Evil,
    Member,
    make_tar,
    make_zip,
    naive_tar,
    naive_zip,
)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_bytes(b"secret")
    return tmp_path


def attack(
    base: Path, evil: Evil, make: Callable[..., Path], naive: Callable[[Path, Path], None]
) -> None:
    archive = make(base / "archive", evil.members_at(base))
    control, target = base / "control", base / "target"
    control.mkdir()
    naive(archive, control)
    assert evil.worked(base, control), "the attack is broken: it does not even work on naive code"
    (base / "planted").unlink(missing_ok=True)

    with pytest.raises(ArchiveError, match=evil.refusal.format(base=re.escape(str(base)))):
        unpack(str(archive), str(target))
    assert not (base / "planted").exists()
    assert all(p.resolve().is_relative_to(target.resolve()) for p in target.rglob("*"))
    assert (base / "secret").stat().st_nlink <= 2  # the control's hard link at most


@pytest.mark.parametrize("evil", EVIL, ids=lambda evil: evil.name)
def test_tar(evil: Evil, base: Path) -> None:
    attack(base, evil, make_tar, naive_tar)


@pytest.mark.parametrize("evil", [evil for evil in EVIL if evil.zips], ids=lambda evil: evil.name)
def test_zip(evil: Evil, base: Path) -> None:
    attack(base, evil, make_zip, naive_zip)


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, b"Z"])
def test_devices_and_unknown_kinds_are_refused(kind: bytes, base: Path) -> None:
    archive = make_tar(base / "archive", [Member("dev", kind=kind)])
    with pytest.raises(ArchiveError, match="dev: devices, pipes and other special files"):
        unpack(str(archive), str(base / "target"))


def test_a_bomb_of_zeros(base: Path) -> None:
    limits = Limits(ratio=50, ratio_from_bytes=1 << 20)
    for make in (lambda path, members: make_tar(path, members, "w:gz"), make_zip):
        archive = make(base / "archive", [Member("zeros", bytes(8 << 20))])
        assert archive.stat().st_size * 200 < 8 << 20
        with pytest.raises(ArchiveError, match="zeros: what is unpacked grows over 1048576 bytes"):
            unpack(str(archive), str(base / f"target-{make is make_zip}"), limits)
    naive_zip(archive, base / "control")
    assert (base / "control/zeros").stat().st_size == 8 << 20


def test_a_sparse_file_cannot_claim_what_it_does_not_hold(base: Path) -> None:
    info = tarfile.TarInfo("sparse")
    info.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[386:398] = b"00000000000\0"  # one piece: offset 0 ...
    header[398:410] = b"00000000000\0"  # ... of no bytes
    header[483:495] = b"77777777777\0"  # of a file of 8 GiB
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    archive = base / "archive"
    archive.write_bytes(bytes(header) + bytes(1024))
    with tarfile.open(archive) as tar:
        assert tar.getmembers()[0].size == (8 << 30) - 1
    with pytest.raises(ArchiveError, match="sparse: what is unpacked grows over"):
        unpack(str(archive), str(base / "target"))
    assert list((base / "target").iterdir()) == []


def test_a_name_of_megabytes_is_never_read(base: Path) -> None:
    archive = make_tar(base / "archive", [Member("n" * (2 << 20))], "w:gz")
    with tarfile.open(archive) as tar:
        assert len(tar.getmembers()[0].name) == 2 << 20
    with pytest.raises(ArchiveError, match="a header of 2097664 bytes"):
        unpack(str(archive), str(base / "target"))


def test_a_negative_size_does_not_loop(base: Path) -> None:
    info = tarfile.TarInfo("again")
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"\xff" * 10 + b"\xfe\x00"  # -512 in base 256: back to this very header
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    archive = base / "archive"
    archive.write_bytes(
        tarfile.TarInfo("first").tobuf(tarfile.GNU_FORMAT) + bytes(header) + bytes(1024)
    )
    with tarfile.open(archive) as tar:
        assert tar.next().name == "first"  # type: ignore[union-attr]
        assert [tar.next().name for _ in range(100)] == ["again"] * 100  # type: ignore[union-attr]
    with pytest.raises(ArchiveError, match="again"):
        unpack(str(archive), str(base / "target"))


def test_chained_headers_do_not_exhaust_the_stack(base: Path) -> None:
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 2
    archive = base / "archive"
    archive.write_bytes(
        (info.tobuf(tarfile.GNU_FORMAT) + b"a\0".ljust(512, b"\0")) * 5000 + bytes(1024)
    )
    with pytest.raises(RecursionError):
        naive_tar(archive, base / "control")
    with pytest.raises(ArchiveError, match="damaged, cut off"):
        unpack(str(archive), str(base / "target"))


def test_an_encrypted_zip_is_refused(base: Path) -> None:
    archive = make_zip(base / "archive", [Member("a")])
    data = bytearray(archive.read_bytes())
    data[6] |= 1
    data[data.index(b"PK\1\2") + 8] |= 1
    archive.write_bytes(data)
    with zipfile.ZipFile(archive) as bundle, pytest.raises(RuntimeError, match="encrypted"):
        bundle.read("a")
    with pytest.raises(ArchiveError, match="a: encrypted members"):
        unpack(str(archive), str(base / "target"))


def test_a_wrong_checksum_in_a_zip_is_named(base: Path) -> None:
    archive = make_zip(base / "archive", [Member("fine"), Member("broken", os.urandom(1000))])
    data = bytearray(archive.read_bytes())
    data[data.index(b"broken") + 500] ^= 1
    archive.write_bytes(data)
    with pytest.raises(ArchiveError, match="broken: damaged"):
        unpack(str(archive), str(base / "target"))
