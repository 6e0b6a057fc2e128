"""Hand-made archives, good and evil, and the naive code that the evil ones work on."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Member:
    """One member: a folder (name ends in '/'), a link, a special file, or a plain file."""

    name: str
    content: bytes = b"content"
    link: str = ""
    kind: bytes = tarfile.REGTYPE
    mode: int = 0o644


def symlink(name: str, target: str) -> Member:
    return Member(name, link=target, kind=tarfile.SYMTYPE)


def hard_link(name: str, source: str) -> Member:
    return Member(name, link=source, kind=tarfile.LNKTYPE)


def make_tar(path: Path, members: Sequence[Member], mode: str = "w") -> Path:
    with tarfile.open(path, mode, format=tarfile.GNU_FORMAT) as tar:  # type: ignore[call-overload]
        for member in members:
            info = tarfile.TarInfo(member.name)
            info.type = tarfile.DIRTYPE if member.name.endswith("/") else member.kind
            info.mode = 0o755 if info.isdir() else member.mode
            info.linkname = member.link
            info.size = len(member.content) if info.isreg() else 0
            tar.addfile(info, io.BytesIO(member.content))
    return path


def make_zip(path: Path, members: Sequence[Member]) -> Path:
    with zipfile.ZipFile(path, "w") as bundle, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about names that come twice
        for member in members:
            info = zipfile.ZipInfo(member.name)
            info.create_system, info.compress_type = 3, zipfile.ZIP_DEFLATED
            kind = {tarfile.SYMTYPE: stat.S_IFLNK, tarfile.FIFOTYPE: stat.S_IFIFO}.get(
                member.kind, stat.S_IFREG
            )
            info.external_attr = (kind | member.mode) << 16
            bundle.writestr(info, member.link.encode() or member.content)
    return path


def naive_tar(archive: Path, target: Path) -> None:
    with tarfile.open(archive) as tar:
        # The first releases of Python 3.11 have no filters, and trust fully.
        tar.extractall(
            target,
            **({"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}),
        )


def naive_zip(archive: Path, target: Path) -> None:
    """What many programs do, bits and links included."""
    with zipfile.ZipFile(archive) as bundle:
        for info in bundle.infolist():
            path = os.path.join(target, info.filename)  # noqa: PTH118 - the very mistake
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            if path.endswith("/"):
                Path(path).mkdir()
            elif stat.S_ISLNK(info.external_attr >> 16):
                Path(path).symlink_to(bundle.read(info).decode())
            elif stat.S_ISFIFO(info.external_attr >> 16):
                os.mkfifo(path)
            else:
                Path(path).write_bytes(bundle.read(info))


@dataclass(frozen=True)
class Evil:
    """An attack: what it is made of, how it shows that it worked, and the words of our refusal.

    ``{base}`` in names and links is the folder that holds the target.
    """

    name: str
    members: Sequence[Member]
    worked: Callable[[Path, Path], bool]
    refusal: str
    zips: bool = True

    def members_at(self, base: Path) -> list[Member]:
        return [
            Member(m.name.format(base=base), m.content, m.link.format(base=base), m.kind, m.mode)
            for m in self.members
        ]


def _written_outside(base: Path, target: Path) -> bool:
    return (base / "planted").exists()


def _leads_outside(base: Path, target: Path) -> bool:
    return any(
        not p.resolve().is_relative_to(target.resolve())
        for p in target.rglob("*")
        if p.is_symlink()
    )


EVIL = [
    Evil("parent", [Member("../planted")], _written_outside, r"\.\./planted: the path has '\.\.'"),
    Evil(
        "deep parent",
        [Member("a/"), Member("a/../../planted")],
        _written_outside,
        r"a/\.\./.*has '\.\.'",
    ),
    Evil("absolute", [Member("{base}/planted")], _written_outside, "the path is absolute"),
    Evil(
        "through a link out",
        [symlink("out", ".."), Member("out/planted")],
        _written_outside,
        "out: the link to .. leads out",
    ),
    Evil(
        "absolute link",
        [symlink("l", "{base}")],
        _leads_outside,
        "l: the link to .* is not relative",
    ),
    Evil(
        "link to the parent",
        [symlink("a/b/l", "../../../x")],
        _leads_outside,
        "a/b/l: the link to .* leads out",
    ),
    Evil(
        "link that climbs through another",
        [Member("d/e/f"), symlink("d/e/up", "../.."), symlink("m", "d/e/up/../secret")],
        _leads_outside,
        "m: the link to d/e/up/../secret leads out",
    ),
    Evil(
        "through a link inside",
        [Member("d/x", b"old"), symlink("l", "d"), Member("l/x", b"new")],
        lambda base, target: (target / "d/x").read_bytes() == b"new",
        "l/x: l is a link",
    ),
    Evil(
        "hard link out",
        [hard_link("h", "{base}/secret")],
        lambda base, target: (target / "h").samefile(base / "secret"),
        "{base}/secret: the path is absolute",
        zips=False,
    ),
    Evil(
        "hard link up",
        [hard_link("h", "../secret")],
        lambda base, target: (target / "h").samefile(base / "secret"),
        r"\.\./secret: the path has '\.\.'",
        zips=False,
    ),
    Evil(
        "hard link to a link",
        [symlink("l", "x"), hard_link("h", "l")],
        lambda base, target: (target / "h").is_symlink(),
        "h: the link to l is to no file before it",
        zips=False,
    ),
    Evil(
        "pipe",
        [Member("p", kind=tarfile.FIFOTYPE)],
        lambda base, target: (target / "p").is_fifo(),
        "p: devices, pipes and other special files",
    ),
    Evil(
        "backslashes",
        [Member("a\\..\\b")],
        lambda base, target: any("\\" in p.name for p in target.iterdir()),
        "backslash",
    ),
    Evil(
        "line feed",
        [Member("a\nINFO all is well")],
        lambda base, target: any("\n" in p.name for p in target.iterdir()),
        r"a\\nINFO all is well: the path has a backslash or a control character",
    ),
    Evil(
        "drive",
        [Member("C:x")],
        lambda base, target: (target / "C:x").exists(),
        "C:x: the path is absolute",
    ),
]
