"""The folder of data: that it can be used, how much room there is, and how fast it keeps."""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from cloud_ml.doctor.findings import Area, Finding
from cloud_ml.engines.local.probe import default_disk_bytes
from cloud_ml.models.common import format_memory
from cloud_ml.settings import Settings

_AREA = Area("storage")
_LEAST_BYTES = 5 * 2**30
_LEAST_INODES = 100_000
_SLOW_MS = 20.0
_ROUNDS = 15
_REMOTE = frozenset({"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "ceph", "glusterfs"})
_FLEETING = frozenset({"tmpfs", "ramfs"})


def examine(settings: Settings) -> Iterator[Finding]:
    """Look at the data folder, or at the place where it would be made."""
    data = settings.data_dir
    place = next(folder for folder in (data, *data.absolute().parents) if folder.exists())
    if place != data:
        yield _AREA.ok("data", f"{data} is made at the first start")
    elif data.stat().st_mode & 0o022:
        yield _AREA.problem("data", f"others may write into {data}", f"chmod go-w {data}")
    else:
        yield _AREA.ok("data", str(data))
    if not os.access(place, os.W_OK | os.X_OK):
        yield _AREA.problem("writing", f"{place} cannot be written by this user", "choose another with --data-dir")
        return
    yield from _room(place)
    yield _default_limit(settings)
    yield _kind(place)
    yield _speed(place)


def _room(place: Path) -> Iterator[Finding]:
    usage = shutil.disk_usage(place)
    says = f"{format_memory(usage.free)} of {format_memory(usage.total)} free"
    enough = usage.free >= _LEAST_BYTES
    remedy = "environments of the larger frameworks take gigabytes; environments.home can lie elsewhere"
    yield _AREA.ok("room", says) if enough else _AREA.warning("room", says, remedy)
    facts = os.statvfs(place)
    if facts.f_files and facts.f_favail < _LEAST_INODES:
        yield _AREA.warning("inodes", f"{facts.f_favail} free", "each environment has thousands of files")


def _default_limit(settings: Settings) -> Finding:
    size, told = default_disk_bytes(settings.engine, settings.data_dir), settings.engine.default_disk
    if not size:
        says = "jobs that name no disk limit have none"
        return _AREA.warning("limit", says, "set engine.default_disk to auto, or to a size such as 20G")
    why = "a quarter of what is free" if told == "auto" else "by setting"
    return _AREA.ok("limit", f"jobs that name no disk limit may keep {format_memory(size)} each: {why}")


def _kind(place: Path) -> Finding:
    kind = _file_system(place)
    if kind in _FLEETING:
        return _AREA.warning("file system", f"{kind}: everything is gone when the machine stops", "use a disk")
    if kind in _REMOTE:
        says = f"{kind}: locks and flushes over a network are what SQLite cannot rely on"
        return _AREA.warning("file system", says, "use a local disk, or PostgreSQL with --database-url")
    return _AREA.ok("file system", kind)


def _file_system(place: Path) -> str:
    """Its type, from the longest mount point above ``place``."""
    real = place.resolve()
    best, kind = -1, "unknown"
    for line in Path("/proc/self/mounts").read_text("utf-8", "replace").splitlines():
        _, mounted, found, *_ = line.split(" ")
        point = mounted.encode().decode("unicode_escape")
        if real.is_relative_to(point) and len(point) > best:
            best, kind = len(point), found
    return kind


def _speed(place: Path) -> Finding:
    """What a promise costs: a submit is acknowledged after one flush to the disk."""
    took = []
    with tempfile.NamedTemporaryFile(dir=place, prefix=".cloudml-doctor-") as file:
        for _ in range(_ROUNDS):
            before = time.perf_counter()
            file.write(b"x" * 4096)
            file.flush()
            os.fdatasync(file.fileno())
            took.append(1000 * (time.perf_counter() - before))
    middle = statistics.median(took)
    says = f"a flush takes {middle:.1f} ms"
    if middle > _SLOW_MS:
        return _AREA.warning("speed", says, "each submit waits for one; a faster disk is a faster platform")
    return _AREA.ok("speed", says)
