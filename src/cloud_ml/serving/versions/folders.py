"""What lies under a base path: numbered folders, and whether somebody still writes into them."""

import hashlib
import os
import re
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cloud_ml.serving.versions.model_config import VersionPolicy
from cloud_ml.serving.versions.single_model import holds_model

_NUMBER = re.compile(r"[0-9]{1,19}")
_HIGHEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Folder:
    """A version on disk. ``print`` changes with its files; ``newest`` is when the last of them
    did, on the clock.
    """

    path: Path
    print: str
    newest: float
    size: int


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen under a base path: every number, those of interest that are whole, those
    that are written yet.
    """

    numbers: frozenset[int] = frozenset()
    whole: Mapping[int, Folder] = field(default_factory=dict)
    growing: Mapping[int, Folder] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class Interest:
    """What is asked of a look: versions that run need no second one; those that failed may need
    a stand-in.
    """

    policy: VersionPolicy
    loaded: frozenset[int] = frozenset()
    failed: frozenset[int] = frozenset()
    before: Mapping[int, Folder] = field(default_factory=dict)
    settle_s: float = 1.0


def look(base: Path, interest: Interest) -> Look:
    """Look at a base path. Only folders that a policy would choose are walked; never raises."""
    try:
        paths = _list_numbered(base)
    except OSError as error:
        return Look(error=f"{base}: {error.strerror or error}")
    whole: dict[int, Folder] = {}
    growing: dict[int, Folder] = {}
    while True:
        there = paths.keys() - growing.keys()
        chosen = interest.policy.choose(there) | interest.policy.choose(there - interest.failed)
        fresh = chosen - interest.loaded - whole.keys()
        if not fresh:
            return Look(frozenset(paths), whole, growing)
        for number in fresh:
            folder = _walk(paths[number])
            if folder is None:
                del paths[number]
            elif _is_settled(folder, interest.before.get(number), interest.settle_s):
                whole[number] = folder
            else:
                growing[number] = folder


def _is_settled(folder: Folder, before: Folder | None, settle_s: float) -> bool:
    """Whether nothing was written for a while; where clocks differ, whether two looks saw the
    same.
    """
    age = time.time() - folder.newest
    return age >= settle_s or (age < 0 and before is not None and before.print == folder.print)


def _list_numbered(base: Path) -> dict[int, Path]:
    """Folders whose name is a number; of several with the same one, the last by name.

    A folder without any that holds a model itself is version 1.
    """
    found: dict[int, Path] = {}
    names = []
    with os.scandir(base) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            names.append(entry.name)
            if _NUMBER.fullmatch(entry.name) and entry.is_dir() and int(entry.name) <= _HIGHEST:
                found[int(entry.name)] = Path(entry.path)
    return {1: base} if not found and holds_model(names) else found


def _walk(path: Path) -> Folder | None:
    """The folder as it is now; None where it went away meanwhile or holds nothing."""
    digest, newest, size, files = hashlib.sha1(usedforsecurity=False), 0.0, 0, 0
    todo = [path]
    try:
        while todo:
            folder = todo.pop()
            newest = max(newest, folder.stat().st_mtime)
            with os.scandir(folder) as entries:
                for entry in sorted(entries, key=lambda each: each.name):
                    if entry.is_dir():
                        todo.append(Path(entry.path))
                        continue
                    info = entry.stat()
                    # Copies that keep times (`cp -p`, `rsync -t`, tar) come with an old mtime.
                    # Nobody can set ctime.
                    files, size, newest = files + 1, size + info.st_size, max(newest, info.st_ctime)
                    digest.update(
                        f"{entry.path}\0{info.st_size}\0{info.st_mtime_ns}\0{info.st_ino}\0".encode(
                            errors="replace"
                        )
                    )
    except OSError:
        return None
    return Folder(path, digest.hexdigest(), newest, size) if files else None


def select_versions(
    policy: VersionPolicy, current: Look, loaded: Collection[int], failed: Collection[int]
) -> frozenset[int]:
    """The versions that a policy wants of what is whole, and where all of those failed, who
    stands in for them.
    """
    there = (current.numbers & set(loaded)) | current.whole.keys()
    chosen = policy.choose(there)
    if chosen and chosen <= set(failed):
        chosen |= policy.choose(there - set(failed))
    return chosen
