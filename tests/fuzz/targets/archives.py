"""What strangers packed."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import stat
import tarfile
import zipfile

from cloud_ml.cli.jobs import archive_outline
from cloud_ml.environments.base import EnvironmentFailed
from cloud_ml.environments.interpreter import own
from cloud_ml.environments.trainers import wheels
from cloud_ml.launcher.archives import (
    ArchiveError,
    Limits,
    link_climbs,
    member_path,
    printable_name,
    unpack,
)
from fuzz.harness import pieces, scratch, target, text

LIMITS = Limits(
    members=64, total_bytes=1 << 18, ratio=50, ratio_from_bytes=1 << 16, name_bytes=256, depth=16
)


def _tar(mode: str = "w", form: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, format=form) as tar:  # type: ignore[call-overload]
        for name, kind, link in (
            ("a", tarfile.DIRTYPE, ""), ("a/file.py", tarfile.REGTYPE, ""), ("a/link", tarfile.SYMTYPE, "file.py"),
            ("a/hard", tarfile.LNKTYPE, "a/file.py"), ("a/" + "long" * 40, tarfile.REGTYPE, ""), ("é", tarfile.REGTYPE, ""),
        ):  # fmt: skip
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.mode = kind, link, 0o755
            member.size = 5 if kind == tarfile.REGTYPE else 0
            tar.addfile(member, io.BytesIO(b"hello"))
    return out.getvalue()


def _zip(method: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as bundle:
        bundle.writestr("a/file.py", b"hello" * 20)
        bundle.writestr("a/", b"")
        link = zipfile.ZipInfo("a/link")
        link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
        bundle.writestr(link, "file.py")
    return out.getvalue()


@target(
    "launcher.archives",
    seeds=[_tar(), _tar("w:gz"), _tar("w:bz2"), _tar("w:xz"), _tar(form=tarfile.GNU_FORMAT), _zip(0), _zip(8)],
    words=["PK\x03\x04", "PK\x01\x02", "PK\x05\x06", "PK\x06\x06", "PK\x06\x07", b"\x1f\x8b", "ustar\x0000", "../", "path=",
           "linkpath=", "size=", "GNU.sparse.major=1", "GNU.sparse.realsize=", "././@LongLink", "././@PaxHeader",
           b"\xff\xff\xff\xff", b"\x01\x00"],
)  # fmt: skip
def archive(data: bytes) -> None:
    """Refused by the one error, or unpacked inside of the folder and within the limits."""
    for strip in (False, True):
        with scratch() as base:
            (base / "archive").write_bytes(data)
            target_folder = base / "target"
            try:
                summary = unpack(str(base / "archive"), str(target_folder), LIMITS, strip=strip)
            except ArchiveError as error:
                assert len(str(error)) < 1000  # noqa: PT017
                summary = None
            assert sorted(os.listdir(base)) == ["archive", "target"]
            size = count = 0
            for folder, folders, files in os.walk(target_folder, followlinks=False):
                for name in itertools.chain(folders, files):
                    path = os.path.join(folder, name)
                    facts = os.lstat(path)
                    count += 1
                    assert stat.S_IFMT(facts.st_mode) in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)
                    assert stat.S_ISLNK(facts.st_mode) or not facts.st_mode & 0o7022
                    inside = os.path.realpath(path)
                    assert inside.startswith(os.path.realpath(target_folder) + "/"), path
                    if stat.S_ISREG(facts.st_mode):
                        size += facts.st_size // facts.st_nlink
            assert size <= LIMITS.allowance(len(data)) + len(data) + (1 << 16)
            assert count <= LIMITS.members
            if summary is not None:
                assert summary.files + summary.folders + summary.links == count


@target(
    "cli.jobs.archive_outline",
    seeds=[_tar(), _tar("w:gz"), _tar("w:bz2"), _tar("w:xz"), _tar(form=tarfile.GNU_FORMAT), _zip(0), _zip(8)],
    words=["PK\x03\x04", "PK\x01\x02", "PK\x05\x06", b"\x1f\x8b", "ustar\x0000", "../", "path=", ".py", "././@LongLink"],
)  # fmt: skip
def outline(data: bytes) -> None:
    """Whatever the file is: Python files without content in their folder, and nothing outside."""
    with scratch() as base:
        (base / "archive").write_bytes(data)
        folder = base / "outline"
        folder.mkdir()
        with contextlib.suppress(OSError, ValueError):
            archive_outline.write_outline(base / "archive", folder)
        assert sorted(os.listdir(base)) == ["archive", "outline"]
        assert not any(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@target(
    "launcher.archives",
    seeds=["a/b\0../c", "./a//b\0..", "a/../b\0a/..", "/etc/passwd\0/etc", "C:\\x\0..\\x", "nul\0con", "a\u202eb\0é"],
    words=["..", "./", "//", "\\", "C:", "\u202e", "\ud800".encode("utf-8", "surrogatepass")],
)  # fmt: skip
def member(data: bytes) -> None:
    """A path is refused, or one that can only lead inside."""
    name, link = map(text, pieces(data, 2))
    assert printable_name(name).isprintable()
    try:
        parts = member_path(name, LIMITS)
        assert not any(part in ("", ".", "..") or "/" in part or "\\" in part for part in parts)
        assert member_path("/".join(parts), LIMITS) == parts
        climbs = link_climbs(parts, link)
    except ArchiveError:
        return
    assert 0 <= climbs < len(parts)
    assert os.path.normpath("/".join(("root", *parts[:-1], link))).split("/")[0] == "root"


@target(
    "environments.trainers.wheels",
    seeds=["a-1.0-py3-none-any.whl\0Name: a\nVersion: 1\nRequires-Dist: "
           "b>1\n\nbody\0[console_scripts]\nx = a.b:c [e]",
           "a-1-cp311-cp311-linux_x86_64.whl\0 Name: x\0[gui_scripts]\n../x = "
           "a:b\ny=a:b;c\nz= os:system"],
    words=["[console_scripts]", "=", ":", "../", "Requires-Dist:", "-none-any.whl", "#", "\r", "\u2028", "\x0b"],
)  # fmt: skip
def wheel(data: bytes) -> None:
    """What a wheel says of itself is read, and its scripts are files of ``bin`` that say three
    lines of ours.
    """
    name, metadata, points = map(text, pieces(data, 3))
    with contextlib.suppress(EnvironmentFailed):
        wheels.check_tags(name, own())
    read_back = wheels.read_metadata(metadata)
    assert "\n" not in read_back.name + read_back.version + "".join(read_back.requires)
    with scratch() as site:
        (site / "a.dist-info").mkdir()
        (site / "a.dist-info/entry_points.txt").write_bytes(
            points.encode("utf-8", "surrogateescape")
        )
        wheels.make_scripts(site)
        assert set(os.listdir(site)) <= {"a.dist-info", "bin"}
        for script in site.glob("bin/*"):
            lines = script.read_bytes().removeprefix(wheels.LAUNCH).decode().splitlines()
            assert len(lines) == 3
            assert lines[1].startswith("from ")
            assert ";" not in lines[1] + lines[2]
