"""Making room: layers and trainers that nobody uses go, the longest unused first."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cloud_ml.environments import leases, process
from cloud_ml.environments.files import read_json, write_json
from cloud_ml.environments.packages import requirements, settled
from cloud_ml.environments.removing import remove

_KINDS = ("layers", "tenants/*/layers", "tenants/*/trainers")


@dataclass(frozen=True)
class Kept:
    """A folder that was built, its size in bytes, and when it was last asked for."""

    folder: Path
    size: int
    used: float


def list_kept(home: Path) -> list[Kept]:
    """Everything that was built below ``home``, the longest unused first."""
    found = [Kept(folder, size_of(folder), leases.last_used(folder)) for folder in _folders(home)]
    return sorted(found, key=lambda one: one.used)


def make_room(home: Path, limit_bytes: int, uv: Path | None = None) -> list[Kept]:
    """Remove unused folders until what is left takes ``limit_bytes`` at most; returns what went.

    What a living process holds stays, even above the limit. Safe beside everything else that goes
    on here. ``uv`` then drops what went from its caches, whose files are the layers' own.
    """
    there = list_kept(home)
    left = sum(one.size for one in there)
    gone: list[Kept] = []
    caches: dict[Path, set[str]] = {}
    for one in there:
        if left <= limit_bytes:
            break
        packages = _packages(one.folder)
        if evict(one.folder):
            gone.append(one)
            left -= one.size
            caches.setdefault(one.folder.parent.parent / "uv-cache", set()).update(packages)
    for cache, names in caches.items() if uv is not None else ():
        _clean(uv, cache, names - _packages_of(cache.parent / "layers"))
    return gone


def evict(folder: Path) -> bool:
    """Remove ``folder`` unless somebody holds it; whether it is gone."""
    if not folder.is_dir():
        return True
    with leases.alone(folder) as free:
        if not free:
            return False
        doomed = folder.with_name(f".{folder.name}.gone")
        remove(doomed)  # what a crash has left
        try:
            folder.rename(doomed)
        except OSError:
            return not folder.is_dir()
    # Remove the files without the lock, so that other processes do not wait for thousands of
    # deletions.
    remove(doomed)
    _size_file(folder).unlink(missing_ok=True)
    return True


def clear_leftovers(home: Path) -> None:
    """Finish removals that a crash has cut off, and forget how nobody uses what is not there.

    What a power cut may have torn goes, with what ``uv`` has kept beside it.
    """
    for folder, mark in settled.doubtful(home):
        if evict(folder):
            remove(folder.parent.parent / "uv-cache")
            # Write the mark last, so that an interrupted run is repeated at the next start.
            mark.unlink(missing_ok=True)
    for kind in _KINDS:
        for doomed in home.glob(f"{kind}/.*.gone"):
            remove(doomed)
        for mark in home.glob(f"{kind}/.*.used"):
            folder = mark.with_name(mark.name.removeprefix(".").removesuffix(".used"))
            if not folder.exists():
                with leases.alone(folder) as free:
                    if free and not folder.exists():
                        mark.unlink(missing_ok=True)


def size_of(folder: Path) -> int:
    """What ``folder`` takes on disk in bytes; counted once, since what was built does not
    change.
    """
    known = read_json(_size_file(folder))
    if isinstance(known, int):
        return known
    size = sum(_sizes(folder))
    with contextlib.suppress(OSError):
        write_json(_size_file(folder), size)
    return size


def _clean(uv: Path | None, cache: Path, names: set[str]) -> None:
    """Drop distributions from a cache of uv; a failure costs disk and nothing else."""
    if uv is None or not names or not cache.is_dir():
        return
    command = [str(uv), "cache", "clean", "--cache-dir", str(cache), *sorted(names)]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(cache)}
    with contextlib.suppress(OSError, TimeoutError):
        process.run(command, environment=environment, timeout_s=300, output=lambda _: None)


def _packages_of(layers: Path) -> set[str]:
    return {name for layer in layers.glob("*") for name in _packages(layer)}


def _packages(layer: Path) -> set[str]:
    """Names of the distributions in a layer."""
    # For example typing_extensions-4.16.0.dist-info.
    infos = (layer / "site-packages").glob("*.dist-info")
    return {requirements.normalise_name(info.name.partition("-")[0]) for info in infos}


def _folders(home: Path) -> Iterator[Path]:
    for kind in _KINDS:
        for folder in home.glob(f"{kind}/*"):
            if not folder.name.startswith(".") and folder.is_dir() and not folder.is_symlink():
                yield folder


def _size_file(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.size")


def _sizes(folder: Path) -> Iterator[int]:
    """Of each file; without recursion, since a tenant's build may have nested folders a thousand
    deep.
    """
    waiting = [str(folder)]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    yield entry.stat(follow_symlinks=False).st_blocks * 512
