"""A disk that loses at a power cut whatever was not forced to it, made of an ordinary folder and
``disk.c``.

Adversarial, within what file systems that people use do: each change of a file or a folder since it
was last forced may be there, be missing, or be there in part, whatever came before or after it. A
rename is whole or not at all, and so is the replacing of a name. Kept without being forced: owners
and modes. Attributes are lost.
"""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import stat
import subprocess
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

_PAGE = 4096
_SECTOR = 512


class Library:
    """What is preloaded, built in ``folder``; skips the test where that cannot be done."""

    def __init__(self, folder: Path) -> None:
        self.path = _built(folder)
        self._power_key = ctypes.CDLL(str(self.path)).power_key

    def key(self, path: Path) -> str:
        """The name of a thing that no other one has had before: its number, and when it was
        born.
        """
        room = ctypes.create_string_buffer(64)
        if self._power_key(os.fsencode(path), room, len(room)):
            raise FileNotFoundError(path)
        return room.value.decode()


def _built(folder: Path) -> Path:
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        pytest.skip(
            "no C compiler, which builds what notes down the forced writes; apt install gcc "
            "libc6-dev"
        )
    library = folder / "disk.so"
    command = [
        compiler,
        "-shared",
        "-fPIC",
        "-O1",
        "-o",
        str(library),
        str(Path(__file__).with_name("disk.c")),
    ]
    built = subprocess.run(command, capture_output=True, check=False, text=True)
    if built.returncode:
        pytest.skip(
            f"what notes down the forced writes cannot be built here: {built.stderr[-500:]}"
        )
    return library


@dataclass
class Disk:
    """The folder ``root``, of which a part is forced.

    Args:
        root: The folder that is watched; what is below it when the disk is made counts as forced.
        notes: An empty folder, elsewhere on the same machine.
        stays: Paths below ``root`` (relative) of which everything stays: the test's own notes.
    """

    library: Library
    root: Path
    notes: Path
    stays: Callable[[Path], bool] = lambda _: False

    def __post_init__(self) -> None:
        self.kept.mkdir(parents=True)
        self._restart()

    @property
    def kept(self) -> Path:
        """Where the forced states lie."""
        return self.notes / "kept"

    @property
    def variables(self) -> dict[str, str]:
        """What a process must be started with."""
        return {
            "LD_PRELOAD": str(self.library.path),
            "POWER_ROOT": str(self.root),
            "POWER_KEPT": str(self.kept),
            "POWER_BOOT": str(self.notes / "boot"),
        }

    def cut(self, luck: random.Random, greed: float) -> None:
        """Lose what was not forced: each thing with the probability ``greed``. Nobody may use
        the folder any more.
        """
        after = self.root.with_name(f"{self.root.name}.after")
        cut = _Cut(self, luck, greed)
        cut.folder(self.library.key(self.root), self.root, after, Path())
        shutil.rmtree(self.root)
        after.rename(self.root)
        self._restart()

    def boot(self) -> None:
        """Have another boot id. Of the disk, nothing is lost."""
        (self.notes / "boot").write_text(f"{uuid.uuid4()}\n")

    def _restart(self) -> None:
        """The machine is up again: all that is there has been read from the disk."""
        self.boot()
        shutil.rmtree(self.kept)
        self.kept.mkdir()
        for folder, folders, files in os.walk(self.root):
            here = Path(folder)
            names = [name for name in (*folders, *files) if not (here / name).is_symlink()]
            listing = b"".join(
                f"{self.library.key(here / name)} {name}\0".encode() for name in names
            )
            (self.kept / f"d-{self.library.key(here)}").write_bytes(listing)
            for name in files:
                if (here / name).is_file() and not (here / name).is_symlink():
                    shutil.copyfile(here / name, self.kept / f"f-{self.library.key(here / name)}")


class _Cut:
    """What is left of one cut. A change happened to a thing or did not, wherever its names are."""

    def __init__(self, disk: Disk, luck: random.Random, greed: float) -> None:
        self._kept, self._key, self._stays = disk.kept, disk.library.key, disk.stays
        self._luck, self._greed = luck, greed
        self._lost: dict[str, bool] = {}
        self._living = {
            self._key(Path(folder, name)): Path(folder, name)
            for folder, folders, files in os.walk(disk.root)
            for name in (*folders, *files)
        }

    def folder(self, key: str, living: Path | None, target: Path, relative: Path) -> None:
        """Make ``target`` what the disk has of a folder."""
        target.mkdir()
        _like(living, target)
        forced = self._listing(key)
        now = (
            {entry.name: self._key(Path(entry.path)) for entry in os.scandir(living)}
            if living is not None
            else {}
        )
        if self._stays(relative):
            forced = now
        for name in sorted({*forced, *now}):
            before, after = forced.get(name), now.get(name)
            # Where something else has come to a name, that change decides; where nothing has, the
            # going away.
            changed = before != after and living is not None
            chosen = (
                before
                if changed and self._is_lost(after or before or "")
                else after
                if changed
                else before
            )
            if chosen is not None:
                self._thing(chosen, target / name, relative / name)

    def _thing(self, key: str, target: Path, relative: Path) -> None:
        living = self._living.get(key)
        is_folder = living.is_dir() if living is not None else (self._kept / f"d-{key}").exists()
        if (
            living is not None
            and not stat.S_ISDIR(mode := living.lstat().st_mode)
            and not stat.S_ISREG(mode)
        ):
            if stat.S_ISLNK(mode):
                target.symlink_to(living.readlink())
        elif is_folder:
            self.folder(key, living, target, relative)
        elif self._stays(relative) and living is not None:
            target.write_bytes(living.read_bytes())
            _like(living, target)
        else:
            target.write_bytes(self._content(key, living))
            _like(living, target)

    def _content(self, key: str, living: Path | None) -> bytes:
        kept = self._kept / f"f-{key}"
        forced = kept.read_bytes() if kept.exists() else b""
        now = living.read_bytes() if living is not None else forced
        if forced == now or self._luck.random() < self._greed:
            return forced
        return self._torn(forced, now)

    def _torn(self, forced: bytes, now: bytes) -> bytes:
        """Some pages are of now, some of then; the file ends where it ended then, now, or in
        between.
        """
        how = self._luck.randrange(4)
        if how == 0:
            return now
        if how == 1 and now.startswith(forced):
            return now[: self._luck.randint(len(forced), len(now))]
        if how == 2:
            return forced + bytes(
                max(0, len(now) - len(forced))
            )  # its size arrived, and what is in it did not
        unit, left = (
            self._luck.choice((_SECTOR, _PAGE)),
            bytearray(self._luck.choice((len(forced), len(now)))),
        )
        for at in range(0, len(left), unit):
            piece = self._luck.choice((forced, now))[at : at + unit][: len(left) - at]
            left[at : at + len(piece)] = piece
        return bytes(left)

    def _listing(self, key: str) -> dict[str, str]:
        try:
            lines = (self._kept / f"d-{key}").read_bytes().split(b"\0")[:-1]
        except FileNotFoundError:
            return {}
        return {
            line.partition(b" ")[2].decode(): line.partition(b" ")[0].decode() for line in lines
        }

    def _is_lost(self, key: str) -> bool:
        return self._lost.setdefault(key, self._luck.random() < self._greed)


def _like(original: Path | None, target: Path) -> None:
    if original is not None:
        facts = original.lstat()
        os.chown(target, facts.st_uid, facts.st_gid)
        target.chmod(stat.S_IMODE(facts.st_mode))
