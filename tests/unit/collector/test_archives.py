"""Archives of code, compared by a process without rights."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from cloud_ml.collector.archive_client import ArchiveComparer
from cloud_ml.collector.archive_files import MOST_FILES, TooMuch, differences, files_of
from cloud_ml.usecases.comparison.code import CannotCompare

NOBODY = 65534 if os.geteuid() == 0 else 0


def packed(files: dict[str, bytes], kind: str = "gz") -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode=f"w:{kind}") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return whole.getvalue()


def zipped(files: dict[str, bytes]) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return whole.getvalue()


@pytest.mark.parametrize("kind", ["", "gz", "bz2", "xz"])
def test_a_tar_and_a_zip_of_the_same_files_differ_in_nothing(kind: str) -> None:
    files = {"a/b.py": b"x = 1\n", "c": b"\0"}
    assert differences(files_of(packed(files, kind)), files_of(zipped(files))) == []


def test_changes_come_from_a_process_of_its_own() -> None:
    first = packed({"a.py": b"x = 1\ny = 2\n", "gone.py": b"1", "b.bin": b"\0"})
    second = zipped({"a.py": b"x = 3\ny = 2\n", "b.bin": b"\0\0"})
    found = {one["path"]: one for one in ArchiveComparer(NOBODY)(first, second)}
    assert list(found) == ["a.py", "b.bin", "gone.py"]
    assert "-x = 1\n+x = 3" in found["a.py"]["diff"]
    assert (found["b.bin"]["diff"], found["b.bin"]["sizes"]) == ("", [1, 2])
    assert found["gone.py"]["sizes"] == [1, None]
    script = ArchiveComparer(NOBODY)(b"x = 1\n", b"x = 2\n")
    assert "+x = 2" in script[0]["diff"]


@pytest.mark.parametrize(
    "archive",
    [b"PK\x03\x04nothing", b"\x1f\x8bnothing", b"BZhnothing", b"\xfd7zXZ\x00nothing"],
)
def test_a_damaged_archive_is_refused_in_words(archive: bytes) -> None:
    with pytest.raises(CannotCompare, match="damaged"):
        ArchiveComparer(NOBODY)(archive, b"")


def test_bombs_are_refused() -> None:
    bomb = zipped({"zeros": bytes(100 * 2**20)})
    for archive in (bomb, packed({"zeros": bytes(100 * 2**20)})):
        with pytest.raises(TooMuch, match="too large"):
            files_of(archive)
        with pytest.raises(CannotCompare):
            ArchiveComparer(NOBODY)(archive, b"")
    with pytest.raises(TooMuch, match="too many"):
        files_of(packed({f"f{number}": b"" for number in range(MOST_FILES + 1)}))


def test_texts_that_take_long_to_compare_are_told_apart_by_digest() -> None:
    lines = [f"{number % 7} {'ab'[number % 2]}" for number in range(2900)]
    first = "\n".join(lines).encode()
    second = "\n".join(reversed([line + " " for line in lines] + lines[:50])).encode()
    files = {f"f{number}.py": first for number in range(150)}
    others = {name: second + name.encode() for name in files}
    found = ArchiveComparer(NOBODY)(packed(files), packed(others))
    assert len(found) == 150
    assert all(one["digests"][0] != one["digests"][1] for one in found)


def test_links_and_devices_are_no_files() -> None:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as archive:
        for name, type_ in (
            ("link", tarfile.SYMTYPE),
            ("hard", tarfile.LNKTYPE),
            ("dev", tarfile.CHRTYPE),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = type_, "/etc/passwd"
            archive.addfile(member)
    assert files_of(whole.getvalue()) == {}


def test_the_process_can_open_no_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    program = (
        "from cloud_ml.collector import fences; fences.give_up_rights(None)\n"
        f"try:\n    open({str(secret)!r})\nexcept OSError:\n    print('refused')\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ran.stdout.strip() == "refused"
